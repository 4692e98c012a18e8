"""Calls at the brink under the preload library: no number left, flags of accept4, the end of a file, control messages that lie,
numbers that change hands, addresses without a port, an emptied environment, options that use nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from c_programs import LIMIT_S, PEER_PORT, inside, peer, programs_in, ran
from netns import usable
from preload_lab import counters_of, preloaded
from veth import ENGINE, KERNEL, namespaces

from pyvma._cli import run

pytestmark = [
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
]

THREE_CLIENTS = f"""
import socket
for _ in range(3):
    with socket.create_connection(({ENGINE[4]!r}, 7501), 60) as s:
        s.sendall(b"x")
        print(s.recv(1).decode(), end="")
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return programs_in(tmp_path_factory.mktemp("brinks"), "brinks", "peer")


def test_accept(programs: Path, tmp_path: Path) -> None:
    """A connection for which there is no number waits; the fd has the flags of the call, whichever half it came by."""
    for env in ({}, preloaded(tmp_path / "counters")):
        with namespaces() as (here, there):
            here.ip("link", "set", "lo", "up")
            command = inside(here, env, str(programs / "brinks"), "accept", "7501")
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                assert server.stdout
                assert server.stdout.readline() == "ready\n"
                assert there.run(sys.executable, "-c", THREE_CLIENTS, limit_s=LIMIT_S) == "xxx"
                assert server.communicate(timeout=LIMIT_S) == ("done\n", "")
            finally:
                server.kill()
                server.communicate()
    assert (tmp_path / "counters").read_text()


def test_a_file_that_ends_before_the_count(programs: Path, tmp_path: Path) -> None:
    with namespaces() as (here, there), peer(there, programs / "peer"):
        for env in ({}, preloaded(tmp_path / "counters")):
            assert ran(here, env, str(programs / "brinks"), "file", KERNEL[4], str(PEER_PORT)) == "done\n"
    assert (tmp_path / "counters").read_text()


def test_a_control_message_longer_than_its_room(programs: Path, tmp_path: Path) -> None:
    with namespaces() as (here, _):
        for env in ({}, preloaded(tmp_path / "counters")):
            assert ran(here, env, str(programs / "brinks"), "rights") == "done\n"


@pytest.mark.parametrize("kind", ["datagrams", "listener"])
def test_a_number_that_becomes_another_files(programs: Path, tmp_path: Path, kind: str) -> None:
    with namespaces() as (here, _):
        for env in ({}, preloaded(tmp_path / "counters")):
            assert ran(here, env, str(programs / "brinks"), kind) == "done\n"
    assert (tmp_path / "counters").read_text()


# Tells who came.
NAMES = """
import socket
with socket.create_server(("", 7504)) as l:
    print("ready", flush=True)
    while True:
        s, address = l.accept()
        s.sendall(address[0].encode())
        s.close()
"""


def test_an_address_without_a_port(programs: Path, tmp_path: Path) -> None:
    """IP_BIND_ADDRESS_NO_PORT, as nginx (proxy_bind), haproxy (source) and curl (--interface) have it: not the device's first address."""
    second = "10.78.0.7"
    with namespaces() as (here, there):
        here.ip("addr", "add", f"{second}/24", "dev", "v0")
        server = subprocess.Popen(inside(there, {}, sys.executable, "-c", NAMES), stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout
            assert server.stdout.readline() == "ready\n"
            for env in ({}, preloaded(tmp_path / "counters")):
                for source in (ENGINE[4], second):
                    assert ran(here, env, str(programs / "brinks"), "source", source, KERNEL[4], "7504") == "done\n"
        finally:
            server.kill()
            server.communicate()
    assert counters_of(tmp_path / "counters")["tcp.opened_active"] == 2


@pytest.mark.parametrize("how", ["cleared", "hops"])
def test_before_the_first_socket(programs: Path, tmp_path: Path, how: str) -> None:
    """Settings are those that the program was given; options which the kernel tells again start nothing."""
    with namespaces() as (here, there), peer(there, programs / "peer"):
        for env in ({}, preloaded(tmp_path / "counters")):
            assert ran(here, env, str(programs / "brinks"), how, KERNEL[4], str(PEER_PORT)) == "done\n"
    assert (tmp_path / "counters").read_text()
