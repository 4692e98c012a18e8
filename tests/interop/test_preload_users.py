"""Programs that begin as root and then are somebody who may open no ring: under `pyvma run` their AF_XDP is pyvmad's."""

from __future__ import annotations

import pwd
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon, daemon
from exchange import wait_for
from netns import usable
from preload_lab import Lab, counted, digest_of, engines, lab, live, make_file, missing

from pyvma._cli import run

USER, GROUP = "www-data", "daemon"
SIZE = 3 << 20
LIMIT_S = 60.0
NGINX = """
daemon off;
user {user} {group};
worker_processes {workers};
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
	access_log off;
	client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
	uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
	server {{ listen {host}:{port}; root {folder}; }}
}}
"""

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
]


@pytest.fixture
def net(tmp_path: Path) -> Iterator[tuple[Lab, Daemon]]:
    with lab(tmp_path) as made, daemon(made.here, "--group", GROUP) as running:
        yield made, running


def a_port() -> int:
    return 20000 + secrets.randbelow(10000)


def served(net: Lab, url: str, digest: str) -> None:
    """A file, whole, several times."""
    for _ in range(3):
        client = net.peer("curl", "-sS", "--fail", "--max-time", "60", "-o", "got", url)
        net.done(client, LIMIT_S)
        assert digest_of(client.folder / "got") == digest


def owners(running: Daemon) -> list[tuple[int, int]]:
    """Number and user of the process that has the ring."""
    return [(process["pid"], process["uid"]) for process in running.status()["processes"] if process["xdp"]]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.skipif(bool(missing("nginx", "curl")), reason="nginx or curl is not installed")
def test_workers_of_nginx(net: tuple[Lab, Daemon], family: int, workers: int) -> None:
    """The master binds, as root; workers accept, as somebody. One has the interface; those of a reload begin while it has, and are the
    kernel's."""
    at, running = net
    folder = at.reports / "nginx"
    folder.mkdir(mode=0o755)
    digest, port = make_file(folder / "big", SIZE), a_port()
    (folder / "big").chmod(0o644)
    host = at.our_host[family] if family == 4 else f"[{at.our_host[family]}]"
    config = folder / "conf"
    config.write_text(NGINX.format(folder=folder, user=USER, group=GROUP, workers=workers, host=host, port=port))
    command = ["nginx", "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")]
    server = at.run(*command, PYVMA_DAEMON=running.path)
    at.listens(server, port)
    somebody = pwd.getpwnam(USER).pw_uid
    ((first, user),) = owners(running)
    assert (first in engines(server), user) == (True, somebody)
    served(at, f"http://{host}:{port}/big", digest)
    if workers == 1:  # of two the other one may have had all of them, by the kernel
        assert live(server)["tcp.tx_bytes"] >= 3 * SIZE
    server.process.send_signal(signal.SIGHUP)
    wait_for("the end of the worker", lambda: first not in [number for number, _ in owners(running)])
    served(at, f"http://{host}:{port}/big", digest)
    server.end(signal.SIGQUIT)
    if workers == 1:
        assert counted(server)["tcp.opened_passive"] >= 3
    wait_for("the end of its ring", lambda: not owners(running))


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.skipif(bool(missing("redis-server", "redis-benchmark", "setpriv")), reason="redis is not installed")
def test_a_service_that_never_was_root(net: tuple[Lab, Daemon], family: int) -> None:
    at, running = net
    port, host = a_port(), at.our_host[family]
    somebody = ["setpriv", f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups", "--"]
    redis = ["redis-server", "--port", str(port), "--bind", host, "--protected-mode", "no", "--save", "", "--dir", "/tmp"]
    server = at.run(*somebody, *redis, PYVMA_DAEMON=running.path)
    at.listens(server, port)
    assert owners(running) == [(server.process.pid, pwd.getpwnam(USER).pw_uid)]
    text = at.ask("redis-benchmark", "-h", host, "-p", str(port), "-n", "2000", "-c", "10", "-t", "set,get", "-q", limit_s=LIMIT_S)
    assert "rror" not in text
    assert live(server)["tcp.opened_passive"] >= 10
    server.end(signal.SIGTERM)
    assert counted(server)["tcp.tx_bytes"] > 2000 * 5
