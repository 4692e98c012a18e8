"""What is said about sockets of the kernel's and about losses: each with a cause and what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from stats_file import Maker, type_of

from pyvma import stats
from pyvma._cli._stats_causes import HARMLESS, LOSSES, REASONS, WHOLES, advice_for, is_loss
from pyvma._cli._stats_explain import explain

LIMIT_S = 60
ROOT = Path(__file__).resolve().parents[2]
TYPES = [
    type_of("net", ("rx_frames", "counter"), ("rx_not_ours", "counter"), ("rx_ip_header", "counter")),
    type_of("ring", ("interface", "text", 16), ("rx_packets", "counter"), ("rx_no_buf", "counter"),
            ("link_up", "flag", {"mask": 1, "size": 1}), ("pool", "link")),
    type_of("pool", ("total", "gauge"), ("low_water", "gauge"), ("exhausted", "counter")),
    type_of("socket", ("fd", "id", 4), ("state", "enum", {"names": ["undecided", "offloaded", "kernel"]}), ("transport", "link"),
            ("reason", "link")),
    type_of("udp", ("local_addr", "addr"), ("local_port", "port"), ("rx_datagrams", "counter"), ("rx_queue_full", "counter")),
    type_of("reason", ("text", "text", 64)),
]  # fmt: skip
TYPES[0]["fields"][2]["help"] = "dropped: malformed IPv4 or IPv6 header"


def write(folder: Path, lost: int = 25, **head: int) -> Path:
    made = Maker(TYPES, program="a service", head=head)
    made.add("net", rx_frames=1000, rx_not_ours=7, rx_ip_header=3)
    pool = made.add("pool", total=2048, low_water=0, exhausted=4)
    made.add("ring", interface="sn0", rx_packets=1000, rx_no_buf=10, link_up=False, pool=pool)
    udp = made.add("udp", local_addr="10.0.0.1", local_port=53, rx_datagrams=75, rx_queue_full=lost)
    made.add("socket", fd=3, state="offloaded", transport=udp)
    loopback = made.add("reason", text="address 127.0.0.1 is the kernel's")
    for fd in range(10, 30):
        made.add("socket", fd=fd, state="kernel", reason=loopback)
    made.add("socket", fd=-1, state="undecided")
    return made.write(folder)


def test_sockets_and_losses(tmp_path: Path) -> None:
    write(tmp_path, hidden=5)
    with stats.attach(os.getpid(), str(tmp_path)) as process:
        found = explain(process.snapshot())
    assert (found.pid, found.program, found.sockets, found.offloaded) == (os.getpid(), "a service", 22, 1)
    assert [(group.state, group.reason, len(group.fds)) for group in found.groups] == [
        ("kernel", "address 127.0.0.1 is the kernel's", 20),
        ("undecided", "not decided yet: no bind, connect or send so far", 1),
    ]
    assert "loopback" in found.groups[0].remedy
    losses = [(loss.where, loss.counter, loss.count) for loss in found.losses]
    assert losses == [
        ("udp socket fd 3 (10.0.0.1 port 53)", "rx_queue_full", 25),
        ("ring sn0", "rx_no_buf", 10),
        ("buffers of sn0", "exhausted", 4),
        ("network layer", "rx_ip_header", 3),
    ]
    assert found.losses[0].share == 0.25
    assert "SO_RCVBUF" in found.losses[0].remedy
    assert "rx_bufs" in found.losses[1].remedy
    assert found.losses[3].cause.startswith("dropped")
    said = " ".join(found.notes)
    for text in ("5 objects", "sn0: its link is down", "2048 buffers"):
        assert text in said


def test_rates_and_harmless_ones(tmp_path: Path) -> None:
    write(tmp_path, lost=5)
    with stats.attach(os.getpid(), str(tmp_path)) as process:
        before = process.snapshot()
        write(tmp_path, lost=9)
        found = explain(stats.delta(before, process.snapshot()))
        assert [(loss.counter, loss.count) for loss in found.losses] == [("rx_queue_full", 4)]
        assert found.interval_s > 0
        every = explain(process.snapshot(), everything=True)
    assert ("rx_not_ours", True) in [(loss.counter, loss.harmless) for loss in every.losses]


def shares(folder: Path, *made: tuple[str, dict[str, int]]) -> dict[str, float | None]:
    """What `explain` says of objects with these counters, by the counter's name."""
    kinds = [type_of(kind, *[(name, "counter") for name in values]) for kind, values in made]
    maker = Maker(kinds)
    for kind, values in made:
        maker.add(kind, **values)
    maker.write(folder)
    with stats.attach(os.getpid(), str(folder)) as process:
        return {loss.counter: loss.share for loss in explain(process.snapshot(), everything=True).losses}


def test_shares_are_of_what_the_counter_counts(tmp_path: Path) -> None:
    """Some counters contain what was lost, others do not; where neither is known there is no share."""
    found = shares(
        tmp_path,
        ("net", {"rx_frames": 1000, "rx_vlan": 1000, "tx_packets": 300, "tx_no_neigh": 100, "reass_full": 5}),
        ("udp_table", {"rx_datagrams": 300, "rx_queue_full": 100, "rx_no_port": 9}),
        ("tcp_table", {"rx_segments": 100, "rx_bad_csum": 10, "tx_segments": 80, "tx_retransmits": 20}),
        ("ring", {"rx_packets": 900, "rx_no_buf": 100, "dm_packets": 30, "dm_oob": 10, "tx_packets": 50, "tx_errors": 1}),
    )
    assert found == {
        "rx_vlan": 1.0, "tx_no_neigh": 0.25, "reass_full": None, "rx_queue_full": 0.25, "rx_no_port": None, "rx_bad_csum": 0.1,
        "tx_retransmits": 0.25, "rx_no_buf": 0.1, "dm_oob": 0.25, "tx_errors": None,
    }  # fmt: skip


def counters() -> list[tuple[str, stats.Field]]:
    """Every counter that there is, by its list in the table."""
    table = (ROOT / "native/base/stats_table.h").read_text()
    lists = {"UDP_COUNTERS": ("udp", "udp_table"), "TCP_COUNTERS": ("tcp_table",), "NET_RX_DROPS": ("net", "ring")}
    found = []
    for part in re.findall(r"#define PV_(\w+)\(X\)((?:.*\\\n)*.*\n)", table):
        for name, text in re.findall(r"X\((\w+),[^\n]*?COUNTER, \"[^\"]*\", \"([^\"]*)\"\)", part[1]):
            field = type_of("x", (name, "counter"))["fields"][0] | {"help": text}
            own = part[0].removeprefix("STATS_").removesuffix("_COUNTERS").lower()
            found += [(kind, field_of(field)) for kind in lists.get(part[0], (own,))]
    return found


def field_of(described: dict[str, Any]) -> stats.Field:
    return stats.Field(**{name: described[name] for name in described if name in stats.Field.__dataclass_fields__})


def test_every_loss_has_its_words() -> None:
    """Only for what comes from the network, malformed, it is said that the sender is to blame."""
    losses = {(kind, field.name) for kind, field in counters() if is_loss(kind, field)}
    assert len(losses) > 50
    bare = {name for kind, name in losses if advice_for(kind, name) is None}
    assert bare == {
        "rx_short", "rx_ip_header", "rx_ip_src", "rx_ip_options", "rx_icmp_bad", "rx_arp_bad", "rx_nd_bad", "rx_malformed", "rx_bad_flags",
    }  # fmt: skip
    for kind in ("udp", "udp_table"):
        advice = advice_for(kind, "rx_queue_full")
        assert advice is not None
        assert "SO_RCVBUF" in advice.remedy
    ring, other = advice_for("ring", "tx_errors"), advice_for("udp", "tx_errors")
    assert ring is not None
    assert other is not None
    assert "log-level" in ring.remedy
    assert "refused" in other.cause
    known = {(kind, field.name) for kind, field in counters()}
    assert set(WHOLES) <= known
    assert {(kind, whole.field) for (kind, _), whole in WHOLES.items()} <= known


def run(folder: Path, env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyvma", "stats", "explain", "-k", str(folder), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S)


def test_command(tmp_path: Path, clean_env: dict[str, str]) -> None:
    nothing = run(tmp_path, clean_env)
    assert (nothing.returncode, nothing.stderr) == (1, "pyvma stats: no process on pyvma\n")
    write(tmp_path)
    done = run(tmp_path, clean_env, "-p", str(os.getpid()))
    assert done.returncode == 0, done.stderr
    assert "1 of 22 sockets are offloaded" in done.stdout
    assert "fd 10, 11, 12, 13, 14, 15, 16, 17 and 12 more" in done.stdout
    assert done.stdout.count("    -> ") == 6
    (one,) = json.loads(run(tmp_path, clean_env, "--json").stdout)
    assert [loss["count"] for loss in one["losses"]] == [25, 10, 4, 3]
    quiet = run(tmp_path, clean_env, "--interval", "0.05")
    assert "nothing was lost in " in quiet.stdout
    gone = run(tmp_path, clean_env, "-p", "999999999")
    assert gone.returncode == 1
    assert gone.stderr.count("\n") == 1


def test_what_is_known_is_of_counters_that_there_are() -> None:
    """A counter or a reason that is renamed takes its advice along."""
    table = (ROOT / "native/base/stats_table.h").read_text()
    names = set(re.findall(r"X\((\w+),", table))
    assert {name for _, name in [*LOSSES, *HARMLESS]} <= names
    kinds = set(re.findall(r"X\([A-Z_]+, (\w+), \"", table))
    assert {kind for kind, _ in [*LOSSES, *HARMLESS]} - {""} <= kinds


def test_reasons_are_those_of_the_engine() -> None:
    sources = "\n".join(path.read_text() for folder in ("sock", "rt") for path in (ROOT / "native" / folder).glob("*.c"))
    spoken = {"127.", "address ::1 "}  # made of an address
    assert [text for text, _ in REASONS if text not in sources and text not in spoken] == []
