"""Clients of databases and brokers, WebSockets, names and Dask: unmodified Python programs over the stack, with servers of the kernel's.

asyncpg speaks to PostgreSQL by asyncio; psycopg's sockets are libpq's, in C, and stay the kernel's.
"""

from __future__ import annotations

import importlib.util
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import uplink
from lab import LONG
from netns import Namespace, usable
from programs import Redis, dnsmasq, mosquitto, postgres, postgres_bin
from python_programs import PROGRAMS, Net, Program, net

NEEDED = ("uvloop", "redis", "asyncpg", "websockets", "paho.mqtt", "dns", "distributed")
missing = [name for name in NEEDED if importlib.util.find_spec(name.partition(".")[0]) is None]
missing += [name for name in ("openssl", "redis-server", "mosquitto", "dnsmasq") if not shutil.which(name)]
missing += [] if postgres_bin() else ["postgresql"]
pytestmark = [
    pytest.mark.usefixtures("ended"),
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
    pytest.mark.timeout(900 if LONG else 240),
]

LIMIT_S = 120.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    with net("xdp", tmp_path_factory.mktemp("xdp")) as made:
        yield made


def run(lab: Net, name: str, *arguments: str, **env: str) -> tuple[dict[str, object], dict[str, int]]:
    """What a program of the folder says that it did, and what its engine counted."""
    program = lab.ours(str(PROGRAMS / name), *arguments, **env)
    return program.result(LIMIT_S), program.counters()


@pytest.mark.parametrize("family", [4, 6])
def test_redis(lab: Net, tmp_path: Path, family: int) -> None:
    with Redis(lab.there, tmp_path, list(lab.their_host.values()), 6379):
        done, counted = run(lab, "redis_client.py", lab.their_host[family], "6379")
    assert done == {"commands": 1603, "published": 50, "asked": 100, "gathered": 200}
    assert counted["tcp.opened_active"] >= 3, counted
    assert min(counted["tcp.tx_bytes"], counted["tcp.rx_bytes"]) >= 8 << 20, counted


def test_postgresql(lab: Net, trust: Path) -> None:
    """With and without TLS, which begins within the connection: loop.start_tls()."""
    password = secrets.token_hex(8)
    with postgres(lab.there, list(lab.their_host.values()), 5432, trust, password) as user:
        for family, ca in ((4, []), (6, [str(trust)])):
            done, counted = run(lab, "asyncpg_client.py", lab.their_host[family], "5432", user, *ca, PGPASSWORD=password)
            assert done.pop("address") == lab.our_host[family]
            assert done == {"ssl": bool(ca), "types": 8, "rows": 20000, "error": "23505", "cancelled": True, "terminated": True}
            assert counted["tcp.opened_active"] >= 12, counted
            assert min(counted["tcp.tx_bytes"], counted["tcp.rx_bytes"]) >= 3_000_000, counted


@pytest.mark.parametrize("family", [4, 6])
def test_websockets(lab: Net, family: int) -> None:
    """Our client and the kernel's server, and the other way round."""
    for serves, asks, hosts in ((lab.theirs, lab.ours, lab.their_host), (lab.ours, lab.theirs, lab.our_host)):
        server = serves(str(PROGRAMS / "websockets_server.py"), hosts[family], "9001")
        server.said("ready")
        host = f"[{hosts[family]}]" if family == 6 else hosts[family]
        client = asks(str(PROGRAMS / "websockets_client.py"), f"ws://{host}:9001")
        assert client.result(LIMIT_S) == {"connections": 51, "code": 1000, "sync": 7}
        assert server.end() == 0, server.text
        assert "Traceback" not in server.text, server.text
        counted = {**client.counters(), **server.counters()}
        assert counted["tcp.opened_active"] + counted["tcp.opened_passive"] >= 52, counted
        assert min(counted["tcp.tx_bytes"], counted["tcp.rx_bytes"]) >= 10_000_000, counted


def test_mqtt(lab: Net, trust: Path, tmp_path: Path) -> None:
    with mosquitto(lab.there, tmp_path / "mosquitto", lab.their_host[4], 1883, trust):
        done, counted = run(lab, "paho_client.py", lab.their_host[4], "1883", "1884", str(trust))
    assert done == {"messages": 102, "tls": 102}
    assert counted["tcp.opened_active"] >= 6, counted
    assert min(counted["tcp.tx_bytes"], counted["tcp.rx_bytes"]) >= 2_000_000, counted


def test_dns(lab: Net, tmp_path: Path) -> None:
    with dnsmasq(lab.there, tmp_path / "dnsmasq", list(lab.their_host.values()), 5353):
        for host in lab.their_host.values():
            done, counted = run(lab, "dns_client.py", host, "5353")
            assert done == {"asked": 108, "timeout": True, "gathered": 200}
            assert min(counted["udp.tx_datagrams"], counted["udp.rx_datagrams"]) >= 155, counted
            assert counted["tcp.opened_active"] >= 155, counted


@pytest.mark.parametrize("comm", ["asyncio", "tornado"])
def test_dask(tmp_path: Path, comm: str) -> None:
    """Scheduler and workers are ours, on three ports of a software NIC; the kernel's client asks through its uplink."""
    hosts = [f"10.77.0.{number}" for number in (11, 12, 13)]
    scheduler = f"tcp://{hosts[0]}:8786"
    env = {"DASK_DISTRIBUTED__COMM__TCP__BACKEND": comm, "DASK_DISTRIBUTED__ADMIN__EVENT_LOOP": "asyncio"}
    env |= {"DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False"}
    with ExitStack() as stack:
        there, fabric = stack.enter_context(uplink.uplink(uplink.KERNEL))
        here = stack.enter_context(Namespace())
        made = Net(here, there, uplink.ENGINE, uplink.KERNEL, [], tmp_path)
        stack.callback(made.end_all)

        def ours(number: int, *arguments: str) -> Program:
            interface = f"softnic:fabric={fabric},port={number},addr={hosts[number]}/24,name=sn0"
            return made.ours("-m", *arguments, "--host", hosts[number], "--no-dashboard", interfaces=[interface], **env)

        programs = [ours(0, "distributed.cli.dask_scheduler", "--port", "8786", "--no-show")]
        programs[0].said("Scheduler at:")
        worker = ["distributed.cli.dask_worker", scheduler, "--no-nanny", "--nthreads", "1", "--local-directory", str(tmp_path)]
        programs += [ours(number, *worker) for number in (1, 2)]
        client = made.theirs(str(PROGRAMS / "dask_client.py"), scheduler, **env)
        assert client.result(LIMIT_S) == {"workers": 2, "total": sum(number * number for number in range(300))}
        for program in reversed(programs):
            assert program.end() == 0, program.text
        counted = [program.counters() for program in programs]
        assert all(one["tcp.opened_active"] + one["tcp.opened_passive"] >= 3 for one in counted), counted
        # Half of the blocks went from one worker to the other, and what was scattered from one to the client.
        assert sum(one["tcp.tx_bytes"] for one in counted) >= 11_000_000, counted
