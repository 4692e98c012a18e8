"""pyvmad's rules, and others who delete or change them: `tc` of the same machine."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from actor import Actor
from daemon import Daemon, asker, daemon, ours, qdiscs
from exchange import wait_for
from netns import Namespace, usable
from veth import ENGINE, KERNEL

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

Lab = tuple[Namespace, Namespace, Daemon, Actor]
MINE = ["protocol", "ip", "u32", "match", "ip", "dport", "9", "0xffff", "flowid", "1:1"]
RULES = """
number, name, fds = tap(index)
for dst, port, proto in given:
    s = held[dst, port, proto] = bound(dst, port, proto)
    c.call(p.FLOW_ADD, flow(dst, port, proto, tap=number), (s.fileno(),))
    c.call(p.FLOW_ADD, flow(dst, port, proto, of[dst], 9, number))
name
"""


@pytest.fixture
def lab(pair: tuple[Namespace, Namespace]) -> Iterator[Lab]:
    """Eight rules of a process, in two tables."""
    here, there = pair
    with daemon(here) as running:
        with asker(here, running.path) as app:
            given = [(ENGINE[family], 5000, proto) for family in (4, 6) for proto in (6, 17)]
            app(RULES, given=given, of={ENGINE[family]: KERNEL[family] for family in (4, 6)})
            yield here, there, running, app
        wait_for("the end of all rules", lambda: not ours(here, "v0"))
        here.run("tc", "qdisc", "del", "dev", "v0", "clsact", check=False)


def numbered(here: Namespace, device: str = "v0") -> list[str]:
    """What there is but for the numbers of root tables, which the kernel chooses, and without counters."""
    return sorted(re.sub(r"\b80[0-9a-f](?=:|: | )", "ROOT", text) for text in ours(here, device))


def batch(here: Namespace, folder: Path, commands: str) -> None:
    """One call of tc's."""
    (folder / "commands").write_text(commands)
    here.run("tc", "-batch", str(folder / "commands"))


@pytest.mark.parametrize(
    "command",
    [
        "qdisc del dev v0 clsact",
        "filter del dev v0 ingress",
        "filter del dev v0 ingress pref 7401",
        "filter del dev v0 ingress pref 7402",
        "filter del dev v0 ingress pref 7401 protocol ip handle 1:88:2 u32",
        "filter del dev v0 ingress pref 7401 protocol ip handle ROOT u32",
    ],
)
def test_what_was_deleted_is_put_back(lab: Lab, command: str) -> None:
    here, there, running, app = lab
    before = numbered(here)
    assert sum("terminal" in text for text in before) == 8
    (root,) = re.findall(r"fh (80\d::\d+) order \d+ key ht 80\d bkt 0 link 1:", "\n".join(ours(here, "v0")))
    for _ in range(2):
        here.run("tc", *command.replace("ROOT", root).split())
        wait_for("the rules", lambda: numbered(here) == before)
    peer = "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.sendto(b'back', (host, 5000))"
    with Actor(netns=there.name) as other:
        other(peer, host=ENGINE[4])
    assert app("frames(fds[0], 1)[0][-4:]") == b"back"
    assert (running.text().count("are put back") >= 2, running.status()["interfaces"][0]["own_qdisc"]) == (True, 1)


def test_another_table_of_that_number(lab: Lab) -> None:
    """The qdisc is somebody else's from then on, and so is the table that has our number."""
    here, _, running, app = lab
    assert running.process is not None
    running.process.send_signal(signal.SIGSTOP)
    here.run("tc", "qdisc", "del", "dev", "v0", "clsact")
    here.run("tc", "qdisc", "add", "dev", "v0", "clsact")
    here.run(*"tc filter add dev v0 ingress pref 51 handle 1: protocol ip u32 divisor 16".split())
    running.process.send_signal(signal.SIGCONT)
    wait_for("the rules", lambda: sum("terminal" in text for text in ours(here, "v0")) == 8)
    assert not any("fh 1:" in text for text in ours(here, "v0"))
    assert running.status()["interfaces"][0]["own_qdisc"] == 0
    before = numbered(here)
    running.stop(signal.SIGKILL)
    running.start()
    assert numbered(here) == before
    app.kill()
    wait_for("the end of ours", lambda: not ours(here, "v0"))
    assert (qdiscs(here, "v0"), "pref 51" in here.run("tc", "filter", "show", "dev", "v0", "ingress")) == (["clsact"], True)


def test_rules_that_were_changed(lab: Lab, tmp_path: Path) -> None:
    here, _, running, _ = lab
    before = numbered(here)
    assert running.process is not None
    running.process.send_signal(signal.SIGSTOP)
    place = "dev v0 ingress pref 7401 protocol ip handle 1:88:2 u32"
    delete = f"filter del {place}\n"
    other = f"filter add {place} ht 1:88: match ip dport 77 0xffff action mirred egress redirect dev lo\n"
    batch(here, tmp_path, delete + other)
    assert numbered(here) != before
    running.process.send_signal(signal.SIGCONT)
    wait_for("the rules", lambda: numbered(here) == before)


def test_what_a_tap_has(lab: Lab) -> None:
    here, _, _, app = lab
    device = app("name")
    before = numbered(here, device)
    assert sum("mirred" in text for text in before) == 4
    for command in ("qdisc del dev {} clsact", "filter del dev {} ingress pref 7409", "filter del dev {} ingress pref 7402"):
        here.run("tc", *command.format(device).split())
        wait_for("the TAP's filters", lambda: numbered(here, device) == before)


def test_messages_that_were_lost(lab: Lab, tmp_path: Path) -> None:
    """More of them than the daemon's buffer takes while it does not look, and those of ours are among the lost. Whether the qdisc is still
    the one that it made the daemon cannot know then: it is let be."""
    here, _, running, _ = lab
    before = [text for text in numbered(here) if " fh 7ff: " not in text]
    assert running.process is not None
    running.process.send_signal(signal.SIGSTOP)
    one = f"filter {{}} dev v0 ingress pref 50 handle 7::1 {' '.join(MINE)}\n".replace(" flowid", " ht 7:: flowid")
    table = "filter add dev v0 ingress pref 50 handle 7: protocol ip u32 divisor 1\n"
    noise = one.format("add") + "filter del dev v0 ingress pref 50 handle 7::1 protocol ip u32\n"
    batch(here, tmp_path, table + noise * 4000)
    here.run("tc", "filter", "del", "dev", "v0", "ingress")
    running.process.send_signal(signal.SIGCONT)
    wait_for("the rules", lambda: numbered(here) == before)
    assert running.status()["interfaces"][0]["own_qdisc"] == 0


def test_a_qdisc_that_somebody_made_meanwhile_stays(lab: Lab) -> None:
    """In the moment in which the last rule goes: the daemon has not looked yet."""
    here, _, running, app = lab
    assert running.process is not None
    running.process.send_signal(signal.SIGSTOP)
    here.run("tc", "qdisc", "del", "dev", "v0", "clsact")
    here.run("tc", "qdisc", "add", "dev", "v0", "clsact")
    app.kill()
    running.process.send_signal(signal.SIGCONT)
    wait_for("the end of all", lambda: not running.status()["processes"] and not running.status()["interfaces"])
    assert "clsact" in here.run("tc", "qdisc", "show", "dev", "v0")


def test_who_deletes_again_and_again(lab: Lab) -> None:
    here, _, running, app = lab
    before = numbered(here)
    for _ in range(60):
        here.run("tc", "qdisc", "del", "dev", "v0", "clsact", check=False)
    assert running.text().count("are put back") <= 20
    wait_for("the rules", lambda: numbered(here) == before)
    # Others' filters are no reason to look, and the daemon's own are none either.
    here.run("tc", "filter", "add", "dev", "v0", "ingress", "pref", "50", *MINE)
    count = running.text().count("put back")
    app("c.call(p.FLOW_DEL, flow(host, 5000, 6, tap=number))", host=ENGINE[4])
    here.run("tc", "filter", "del", "dev", "v0", "ingress", "pref", "50")
    wait_for("the end of one", lambda: sum("terminal" in text for text in ours(here, "v0")) == 7)
    assert running.text().count("put back") == count
    assert [each["kind"] for each in json.loads(here.run("tc", "-j", "qdisc", "show", "dev", "v0"))].count("clsact") == 1
