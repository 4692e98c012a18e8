"""Programs that nobody here wrote, as they are, under `pyvma run`: servers and clients over AF_XDP on a veth pair with the Linux kernel's
sockets at the other end, by IPv4 and IPv6. What arrives is compared, and the engine's counters prove whose traffic it was.

The normal suite has a handful; PYVMA_TEST_LONG=1 runs all, for longer, and prints the table (`-rP`).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from exchange import wait_for
from lab import LONG
from netns import usable
from preload_lab import MIB, Lab, bracketed, counted, digest_of, engines, lab, live, make_file, missing, offloads
from python_programs import Program

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.timeout(900 if LONG else 240),
]

APPS = Path(__file__).parent / "preload_apps"
SIZE = (64 if LONG else 4) * MIB
LIMIT_S = 300.0 if LONG else 60.0
WRK_S = int(os.environ.get("WRK_SECONDS", "300" if LONG else "2"))
COPIED = (1024 if LONG else 4) * MIB  # by scp
REQUESTS = 20_000 if LONG else 2000


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("programs")
    folder.chmod(0o755)
    for parent in list(folder.parents)[:2]:  # PostgreSQL and nginx's workers are other users
        parent.chmod(0o755)
    with lab(folder) as made:
        yield made


@dataclass(frozen=True)
class Case:
    """`work` does it all and raises when something is wrong. `bytes_floor`: what the stack must have carried at least, each way counted."""

    name: str
    work: Callable[[Lab, int], None]
    needs: tuple[str, ...]
    quick: tuple[int, ...]  # families in the normal suite
    families: tuple[int, ...]


CASES: list[Case] = []


def case(
    name: str, *needs: str, quick: tuple[int, ...] = (), families: tuple[int, ...] = (4, 6)
) -> Callable[[Callable[[Lab, int], None]], Callable[[Lab, int], None]]:
    """Puts a function into the table."""

    def add(work: Callable[[Lab, int], None]) -> Callable[[Lab, int], None]:
        CASES.append(Case(name, work, needs, quick, families))
        return work

    return add


_ports = iter(range(20001, 30000))


def a_port() -> int:
    """Another one each time: connections that are over still have the last one."""
    return next(_ports)


def proved(counters: dict[str, int], **floors: int) -> None:
    """`tcp_rx_bytes=5`: that counter is 5 at least."""
    for name, floor in floors.items():
        key = name.replace("_", ".", 1)
        assert counters.get(key, 0) >= floor, f"{key} is {counters.get(key, 0)}, not {floor}: {counters}"


def over(net: Lab, program: Program, number: int = signal.SIGTERM) -> dict[str, int]:
    """Ends a server of ours; what its engines counted."""
    program.end(number)
    return counted(program)


# ---- sockperf and iperf3 ------------------------------------------------------------------------------------------------------


def sockperf(net: Lab, family: int, serves: bool, *proto: str) -> None:
    port = str(a_port())
    where = ["-i", (net.our_host if serves else net.their_host)[family], "-p", port, *proto]
    start = (net.run, net.peer) if serves else (net.peer, net.run)
    server = start[0]("sockperf", "server", *where)
    net.listens(server, int(port), udp="--tcp" not in proto)
    client = start[1]("sockperf", "ping-pong", *where, "-t", "1", "-m", "64", "--mps", "500")
    text = net.done(client)
    counts = re.search(r"\[Total Run\].*SentMessages=(\d+); ReceivedMessages=(\d+)", text)
    assert counts is not None and int(counts[2]) >= 20, text
    server.end(signal.SIGINT)
    ours = server if serves else client
    if "--tcp" in proto:
        proved(counted(ours), tcp_rx_bytes=64 * int(counts[2]), tcp_tx_bytes=64 * int(counts[2]))
    else:
        proved(counted(ours), udp_rx_datagrams=int(counts[2]), udp_tx_datagrams=int(counts[2]))


@case("sockperf server, UDP", "sockperf", quick=(4,), families=(4,))
def sockperf_udp_server(net: Lab, family: int) -> None:
    sockperf(net, family, True)


@case("sockperf client, UDP", "sockperf", families=(4,))
def sockperf_udp_client(net: Lab, family: int) -> None:
    sockperf(net, family, False)


@case("sockperf server, TCP", "sockperf", families=(4,))
def sockperf_tcp_server(net: Lab, family: int) -> None:
    sockperf(net, family, True, "--tcp")


@case("sockperf client, TCP", "sockperf", families=(4,))
def sockperf_tcp_client(net: Lab, family: int) -> None:
    sockperf(net, family, False, "--tcp")


def iperf(net: Lab, family: int, serves: bool, *more: str) -> None:
    port = str(a_port())
    start = (net.run, net.peer) if serves else (net.peer, net.run)
    server = start[0]("iperf3", "-s", "-1", "-p", port)
    net.listens(server, int(port))
    host = (net.our_host if serves else net.their_host)[family]
    client = start[1]("iperf3", "-c", host, "-p", port, "-t", "2", "-i", "0", *more)
    text = net.done(client)
    assert "receiver" in text and "error" not in text, text
    net.done(server)
    counters = counted(server if serves else client)
    if "-u" in more:
        proved(counters, udp_rx_datagrams=20) if serves else proved(counters, udp_tx_datagrams=20)
    else:
        sends = serves == ("-R" in more)
        proved(counters, **{"tcp_tx_bytes" if sends else "tcp_rx_bytes": 10 * MIB})


@case("iperf3 server", "iperf3")
def iperf_server(net: Lab, family: int) -> None:
    iperf(net, family, True)
    iperf(net, family, True, "-R")


@case("iperf3 client", "iperf3")
def iperf_client(net: Lab, family: int) -> None:
    iperf(net, family, False)
    iperf(net, family, False, "-R")


@case("iperf3 server, UDP", "iperf3")
def iperf_udp_server(net: Lab, family: int) -> None:
    iperf(net, family, True, "-u", "-b", "50M")


@case("iperf3 client, UDP", "iperf3")
def iperf_udp_client(net: Lab, family: int) -> None:
    iperf(net, family, False, "-u", "-b", "50M")


# ---- HTTP ---------------------------------------------------------------------------------------------------------------------


def kernel_files(net: Lab, family: int) -> tuple[Program, str, str]:
    """A web server of the kernel's; its URL of a file, and the file's digest."""
    folder, port = net.folder / "files", a_port()
    if not folder.exists():
        folder.mkdir()
    digest = make_file(folder / "big", SIZE)
    server = net.peer("/usr/bin/python3", "-m", "http.server", str(port), "--bind", net.their_host[family], "--directory", str(folder))
    net.listens(server, port)
    return server, f"http://{bracketed(net.their_host[family])}:{port}/big", digest


def fetcher(net: Lab, family: int, *command: str) -> None:
    server, url, digest = kernel_files(net, family)
    client = net.run(*command, url)
    net.done(client, LIMIT_S)
    assert digest_of(client.folder / "got") == digest
    proved(counted(client), tcp_rx_bytes=SIZE, tcp_opened_active=1)
    server.kill()


@case("curl", "curl", quick=(4, 6))
def curl_client(net: Lab, family: int) -> None:
    fetcher(net, family, "curl", "-sS", "--fail", "-o", "got")


@case("wget", "wget")
def wget_client(net: Lab, family: int) -> None:
    fetcher(net, family, "wget", "-q", "-O", "got")


@case("socat client", "socat")
def socat_client(net: Lab, family: int) -> None:
    server, url, digest = kernel_files(net, family)
    host, port = url.removeprefix("http://").removesuffix("/big").rsplit(":", 1)
    command = f"printf 'GET /big HTTP/1.0\\r\\n\\r\\n' | socat -t 30 - TCP{family}:{host}:{port} >got"
    client = net.run("sh", "-c", command)
    net.done(client, LIMIT_S)
    body = (client.folder / "got").read_bytes().partition(b"\r\n\r\n")[2]
    (client.folder / "got").write_bytes(body)
    assert digest_of(client.folder / "got") == digest
    proved(counted(client), tcp_rx_bytes=SIZE)
    server.kill()


@case("socat server", "socat")
def socat_server(net: Lab, family: int) -> None:
    """A process a connection: what the parent accepted its child serves."""
    port = a_port()
    server = net.run("socat", f"TCP{family}-LISTEN:{port},fork,reuseaddr", "EXEC:rev")
    net.listens(server, port)
    for number in range(3):
        text = net.ask("sh", "-c", f"echo abc{number} | socat -t 20 - TCP{family}:{bracketed(net.our_host[family])}:{port}")
        assert text.strip() == f"{number}cba"
    proved(over(net, server), tcp_opened_passive=1)  # the first may have come before it waited


def visited(net: Lab, url: str, digest: str, times: int = 3) -> None:
    """curl of the kernel's side gets a whole file, several times."""
    for _ in range(times):
        client = net.peer("curl", "-sS", "--fail", "--max-time", "60", "-o", "got", url)
        net.done(client, LIMIT_S)
        assert digest_of(client.folder / "got") == digest


@case("python3 -m http.server", "curl", quick=(4,))
def python_server(net: Lab, family: int) -> None:
    folder, port = net.folder / "files", a_port()
    folder.mkdir(exist_ok=True)
    digest = make_file(folder / "big", SIZE)
    host = net.our_host[family]
    server = net.run("/usr/bin/python3", "-m", "http.server", str(port), "--bind", host, "--directory", str(folder))
    net.listens(server, port)
    visited(net, f"http://{bracketed(host)}:{port}/big", digest)
    proved(over(net, server, signal.SIGINT), tcp_opened_passive=3, tcp_tx_bytes=3 * SIZE)


NGINX = """
daemon off;
user root;
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
	access_log off;
	sendfile on;
	keepalive_requests 10000000;
	client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
	uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
	server {{ listen {listen} reuseport; root {files}; location /hello {{ return 200 "hello\\n"; }} }}
}}
"""


def nginx_started(net: Lab, family: int, more: str = "") -> tuple[Program, str, str]:
    files, port = net.folder / "files", a_port()
    files.mkdir(exist_ok=True)
    digest = make_file(files / "big", SIZE)
    folder = net.folder / f"nginx{port}"
    folder.mkdir()
    host = bracketed(net.our_host[family])
    config = folder / "nginx.conf"
    text = NGINX.format(folder=folder, files=files, listen=f"{host}:{port}")
    config.write_text(text if more != "plain" else text.replace(" reuseport", ""))
    server = net.run("nginx", "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log"))
    net.listens(server, port)
    return server, f"http://{host}:{port}", digest


@case("nginx, 2 workers, reload under load", "nginx", "curl", "wrk")
def nginx_server(net: Lab, family: int) -> None:
    server, url, digest = nginx_started(net, family, "plain")
    visited(net, f"{url}/big", digest)
    load = net.peer("wrk", "-t", "2", "-c", "32", "-d", "6s", "--timeout", "20s", f"{url}/hello")
    for _ in range(3):
        time.sleep(1)  # the load goes on meanwhile; nothing waits for this
        server.process.send_signal(signal.SIGHUP)
    text = net.done(load, LIMIT_S)
    # At a reload a worker closes what is idle, over the kernel's sockets, too: a reader finds that once a connection at most.
    errors = re.search(r"Socket errors: connect 0, read (\d+), write 0, timeout 0", text)
    assert (errors is None and "Socket errors" not in text) or (errors and int(errors[1]) <= 3 * 32), text
    assert "Non-2xx" not in text, text
    print(text)
    visited(net, f"{url}/big", digest)
    number = len(engines(server))
    counters = over(net, server, signal.SIGQUIT)
    print(f"{number} engines", counters.get("tcp.opened_passive"), counters.get("tcp.tx_bytes"))
    proved(counters, tcp_opened_passive=1, tcp_tx_bytes=1000)


@case("nginx, a reload passes the ring on", "nginx", "curl")
def nginx_reloaded(net: Lab, family: int) -> None:
    """A new worker waits a moment for the ring of the one that leaves; on a machine that is busy that may take longer than it waits."""
    server, url, digest = nginx_started(net, family, "plain")
    visited(net, f"{url}/big", digest, 1)
    gone: set[int] = set()  # a number of these may be another program's by now
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        seen = engines(server)
        old, gone = seen - gone, seen
        server.process.send_signal(signal.SIGHUP)
        wait_for("the end of the old workers", lambda old=old: not any(Path(f"/proc/{pid}").exists() for pid in old), LIMIT_S)
        wait_for("the new workers' engines", lambda seen=seen: len(engines(server) - seen) == 2, LIMIT_S)
        with suppress(AssertionError):
            wait_for("an offloaded listener", lambda: offloads(server), 2.0)
            break
    else:
        pytest.fail("no reload passed the ring on")
    before = live(server).get("tcp.tx_bytes", 0)
    visited(net, f"{url}/big", digest, 1)
    wait_for("the new worker's bytes", lambda: live(server).get("tcp.tx_bytes", 0) >= before + SIZE, LIMIT_S)
    over(net, server, signal.SIGQUIT)


# ---- databases ----------------------------------------------------------------------------------------------------------------


def redis_server(net: Lab, family: int, start: Callable[..., Program], host: str, port: int, folder: Path) -> Program:
    server = start(
        "redis-server", "--port", str(port), "--bind", host, "--protected-mode", "no", "--save", "", "--dir", str(folder),
        "--dbfilename", f"{port}.rdb",
    )  # fmt: skip
    net.listens(server, port)
    return server


@case("nginx under wrk", "nginx", "wrk", families=(4,))
def nginx_load(net: Lab, family: int) -> None:
    server, url, _ = nginx_started(net, family, "plain")
    text = net.done(net.peer("wrk", "-t", "2", "-c", "64", "-d", f"{WRK_S}s", "--timeout", "30s", f"{url}/hello"), WRK_S + LIMIT_S)
    assert "Socket errors" not in text and "Non-2xx" not in text and "Requests/sec" in text, text
    print(text)
    proved(over(net, server, signal.SIGQUIT), tcp_opened_passive=1, tcp_tx_bytes=1000)


@case("redis-server, BGSAVE under load", "redis-server", "redis-benchmark", quick=(4,))
def redis_served(net: Lab, family: int) -> None:
    host, port = net.our_host[family], a_port()
    server = redis_server(net, family, net.run, host, port, net.folder)
    where = ["-h", host, "-p", str(port)]
    load = net.peer(
        "redis-benchmark", *where, "-n", str(REQUESTS), "-c", "20", "-t", "set,get,lpush,lrange_100", "-r", "1000", "-d", "100", "-q"
    )
    assert "Background saving started" in net.ask("redis-cli", *where, "bgsave")
    text = net.done(load, LIMIT_S)
    assert "rror" not in text, text

    def saved() -> bool:
        return "rdb_bgsave_in_progress:0" in net.ask("redis-cli", *where, "info", "persistence")

    wait_for("the end of BGSAVE", saved)
    assert "rdb_last_bgsave_status:ok" in net.ask("redis-cli", *where, "info", "persistence")
    net.ask("redis-cli", *where, "set", "k", "v")
    assert net.ask("redis-cli", *where, "get", "k").strip() == "v"
    proved(live(server), tcp_opened_passive=20)
    proved(over(net, server), tcp_opened_passive=20, tcp_rx_bytes=REQUESTS * 100, tcp_tx_bytes=REQUESTS * 100)


@case("redis-benchmark, redis-cli", "redis-server", "redis-benchmark")
def redis_client(net: Lab, family: int) -> None:
    host, port = net.their_host[family], a_port()
    server = redis_server(net, family, net.peer, host, port, net.folder)
    client = net.run("redis-benchmark", "-h", host, "-p", str(port), "-n", str(REQUESTS), "-c", "20", "-t", "set,get", "-q")
    text = net.done(client, LIMIT_S)
    assert "rror" not in text, text
    proved(counted(client), tcp_opened_active=20, tcp_tx_bytes=REQUESTS * 30)
    client = net.run("redis-cli", "-h", host, "-p", str(port), "ping")
    assert "PONG" in net.done(client)
    proved(counted(client), tcp_opened_active=1)
    server.kill()


@case("memcached", "memcached")
def memcached_server(net: Lab, family: int) -> None:
    host, port = net.our_host[family], a_port()
    server = net.run("memcached", "-u", "root", "-p", str(port), "-U", str(port), "-l", host, "-t", "2")
    net.listens(server, port)
    text = net.ask("/usr/bin/python3", str(APPS / "memcached_client.py"), host, str(port), str(REQUESTS // 10), limit_s=LIMIT_S)
    assert "all as stored" in text
    proved(over(net, server), tcp_opened_passive=4, tcp_rx_bytes=REQUESTS * 10, udp_rx_datagrams=1)


@case("haproxy, both sides", "haproxy", "curl")
def haproxy_between(net: Lab, family: int) -> None:
    origin, url, digest = kernel_files(net, family)
    port = a_port()
    config = net.folder / f"haproxy{port}"
    host = bracketed(net.our_host[family])
    target = url.removeprefix("http://").removesuffix("/big").replace("[", "").replace("]", "")
    config.write_text(
        "global\n  nbthread 2\ndefaults\n  mode http\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n"
        f"frontend f\n  bind {host}:{port}\n  default_backend b\nbackend b\n  server s {target}\n"
    )
    server = net.run("haproxy", "-db", "-f", str(config))
    net.listens(server, port)
    visited(net, f"http://{host}:{port}/big", digest)
    proved(over(net, server, signal.SIGUSR1), tcp_opened_passive=3, tcp_opened_active=3, tcp_rx_bytes=3 * SIZE, tcp_tx_bytes=3 * SIZE)
    origin.kill()


def postgres_folder(folder: Path) -> tuple[Path, list[str]]:
    """A new cluster; how commands become its user's."""
    import subprocess

    from programs import postgres_bin

    found = postgres_bin()
    assert found is not None
    folder.mkdir()
    shutil.chown(folder, "postgres", "postgres")
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
    made = [*as_user, str(found / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]
    subprocess.run(made, check=True, capture_output=True, timeout=60, cwd=folder)
    with (folder / "data" / "pg_hba.conf").open("a") as file:
        file.write("host all all all trust\n")
    return found, as_user


def postgres_command(found: Path, folder: Path, host: str, port: int) -> list[str]:
    settings = {"listen_addresses": host, "port": port, "unix_socket_directories": folder, "fsync": "off", "log_destination": "stderr"}
    return [str(found / "postgres"), "-D", str(folder / "data"), *(f"--{name}={value}" for name, value in settings.items())]


def pgbench(net: Lab, start: Callable[..., Program], host: str, port: int) -> Program:
    where = ["-h", host, "-p", str(port), "-U", "postgres", "postgres"]
    net.done(start("pgbench", "-i", "-q", "-s", "1", *where), LIMIT_S)
    client = start("pgbench", "-c", "4", "-j", "2", "-t", str(REQUESTS // 100), *where)
    text = net.done(client, LIMIT_S)
    assert f"number of transactions actually processed: {4 * (REQUESTS // 100)}/" in text, text
    return client


@case("PostgreSQL server", "pgbench", "initdb" if shutil.which("initdb") else "pgbench")
def postgres_server(net: Lab, family: int) -> None:
    """Its user may open no ring: the postmaster has to be root's child with the capabilities, which it keeps as ambient ones."""
    port, host = a_port(), net.our_host[family]
    folder = Path(f"/tmp/pyvma-pg-{port}")
    try:
        found, _ = postgres_folder(folder)
        caps = "+net_admin,+net_raw,+bpf,+ipc_lock,+sys_admin"
        able = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", f"--inh-caps={caps}", f"--ambient-caps={caps}", "--"]
        server = net.run(*able, *postgres_command(found, folder, host, port))
        net.listens(server, port)
        pgbench(net, net.peer, host, port)
        proved(over(net, server, signal.SIGINT), tcp_opened_passive=1)
    finally:
        shutil.rmtree(folder)


@case("pgbench", "pgbench")
def postgres_client(net: Lab, family: int) -> None:
    port, host = a_port(), net.their_host[family]
    folder = Path(f"/tmp/pyvma-pg-{port}")
    try:
        found, as_user = postgres_folder(folder)
        server = net.peer(*as_user, *postgres_command(found, folder, host, port))
        net.listens(server, port)
        proved(counted(pgbench(net, net.run, host, port)), tcp_opened_active=4, tcp_rx_bytes=4 * REQUESTS)
        server.end(signal.SIGINT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- ssh ----------------------------------------------------------------------------------------------------------------------


def sshd(net: Lab, start: Callable[..., Program], host: str, port: int) -> tuple[Program, list[str]]:
    """The server, and a client's options."""
    from preload_lab import key_of

    folder = net.folder / f"ssh{port}"
    folder.mkdir(mode=0o700)
    key, own = key_of(folder, "host"), key_of(folder, "user")
    (folder / "authorized").write_bytes(own.with_suffix(".pub").read_bytes())
    config = folder / "sshd_config"
    lines = [f"ListenAddress {bracketed(host)}:{port}", f"HostKey {key}", f"AuthorizedKeysFile {folder / 'authorized'}", "StrictModes no"]
    config.write_text("\n".join([*lines, "PermitRootLogin yes", "UsePAM no", "PidFile none", "Subsystem sftp internal-sftp", ""]))
    Path("/run/sshd").mkdir(exist_ok=True)
    server = start("/usr/sbin/sshd", "-D", "-e", "-f", str(config))
    net.listens(server, port)
    known = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes"]
    return server, ["-F", "none", "-i", str(own), *known]


def scp(net: Lab, family: int, serves: bool) -> None:
    host, port = (net.our_host if serves else net.their_host)[family], a_port()
    start = (net.run, net.peer) if serves else (net.peer, net.run)
    server, options = sshd(net, start[0], host, port)
    digest = make_file(net.folder / "sent", COPIED)
    there = net.folder / f"copied{port}"
    client = start[1]("scp", *options, "-P", str(port), str(net.folder / "sent"), f"root@{bracketed(host)}:{there}")
    net.done(client, LIMIT_S)
    assert digest_of(there) == digest
    back = start[1]("scp", *options, "-P", str(port), f"root@{bracketed(host)}:{there}", "got")
    net.done(back, LIMIT_S)
    assert digest_of(back.folder / "got") == digest
    counters = over(net, server)
    if serves:
        proved(counters, tcp_opened_passive=2)
    else:
        proved(counted(client), tcp_tx_bytes=COPIED)
        proved(counted(back), tcp_rx_bytes=COPIED)


@case("OpenSSH server (scp)", "sshd", "scp")
def ssh_server(net: Lab, family: int) -> None:
    scp(net, family, True)


@case("OpenSSH client (scp)", "sshd", "scp")
def ssh_client(net: Lab, family: int) -> None:
    scp(net, family, False)


# ---- names --------------------------------------------------------------------------------------------------------------------


def dns(net: Lab, family: int, serves: bool) -> None:
    host, port = (net.our_host if serves else net.their_host)[family], a_port()
    folder = net.folder / f"dns{port}"
    folder.mkdir()
    (folder / "hosts").write_text("\n".join(f"10.1.0.{number} host{number}.test" for number in range(50)) + "\n")
    start = (net.run, net.peer) if serves else (net.peer, net.run)
    server = start[0](
        "/usr/sbin/dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
        f"--addn-hosts={folder / 'hosts'}",
        "--local=/test/", f"--port={port}", "--bind-interfaces", f"--listen-address={host}", "--user=root", "--pid-file=",
        f"--log-facility={folder / 'log'}",
    )  # fmt: skip
    net.listens(server, port, udp=True)
    ours = []
    for number in range(5):
        for more in ([], ["+tcp"]):
            client = start[1]("dig", *more, "+short", "+time=10", "+tries=2", f"@{host}", "-p", str(port), f"host{number}.test")
            assert f"10.1.0.{number}" in net.done(client).splitlines(), client.text
            ours.append(client)
    if serves:  # as on the kernel it does not end at once when it has had connections
        proved(live(server), udp_rx_datagrams=5, udp_tx_datagrams=5, tcp_opened_passive=1)
    else:
        proved(counted(ours[0]), udp_rx_datagrams=1)
        proved(counted(ours[1]), tcp_opened_active=1)


@case("dnsmasq", "dnsmasq", "dig")
def dns_server(net: Lab, family: int) -> None:
    dns(net, family, True)


@case("dig", "dnsmasq", "dig")
def dns_client(net: Lab, family: int) -> None:
    dns(net, family, False)


# ---- runtimes -----------------------------------------------------------------------------------------------------------------


def http_app(net: Lab, family: int, serves: bool, server_line: list[str], client_line: list[str]) -> None:
    """Both programs take HOST PORT; servers answer /N with N bytes, clients check 200 answers, four at a time, and print "ok"."""
    host, port = (net.our_host if serves else net.their_host)[family], a_port()
    start = (net.run, net.peer) if serves else (net.peer, net.run)
    server = start[0](*server_line, host, str(port))
    net.listens(server, port)
    client = start[1](*client_line, host, str(port))
    assert net.done(client, LIMIT_S).splitlines()[-1] == "ok"
    server.end(signal.SIGTERM)
    ours = counted(server if serves else client)
    proved(ours, **{"tcp_opened_passive" if serves else "tcp_opened_active": 4, "tcp_tx_bytes" if serves else "tcp_rx_bytes": 200_000})


PYTHON_CLIENT = ["/usr/bin/python3", str(APPS / "http_client.py")]
PYTHON_SERVER = ["/usr/bin/python3", str(APPS / "asyncio_server.py")]


@case("node, http server", "node")
def node_server(net: Lab, family: int) -> None:
    http_app(net, family, True, ["node", str(APPS / "http_server.js")], PYTHON_CLIENT)


@case("node, http client", "node")
def node_client(net: Lab, family: int) -> None:
    http_app(net, family, False, PYTHON_SERVER, ["node", str(APPS / "http_client.js")])


@case("asyncio (stock), server")
def asyncio_server(net: Lab, family: int) -> None:
    http_app(net, family, True, PYTHON_SERVER, PYTHON_CLIENT)


@case("asyncio (stock), client")
def asyncio_client(net: Lab, family: int) -> None:
    http_app(net, family, False, PYTHON_SERVER, ["/usr/bin/python3", str(APPS / "asyncio_client.py")])


@case("uvloop (stock), server")
def uvloop_server(net: Lab, family: int) -> None:
    import sys

    http_app(net, family, True, [sys.executable, str(APPS / "asyncio_server.py"), "--uvloop"], PYTHON_CLIENT)


@case("uvloop (stock), client")
def uvloop_client(net: Lab, family: int) -> None:
    import sys

    http_app(net, family, False, PYTHON_SERVER, [sys.executable, str(APPS / "asyncio_client.py"), "--uvloop"])


def java(name: str) -> list[str]:
    return ["java", "-XX:+UseSerialGC", "-Xshare:auto", str(APPS / name)]


@case("Java, HttpServer", "java", "javac")
def java_server(net: Lab, family: int) -> None:
    http_app(net, family, True, java("HttpServe.java"), PYTHON_CLIENT)


@case("Java, HttpClient", "java", "javac")
def java_client(net: Lab, family: int) -> None:
    http_app(net, family, False, PYTHON_SERVER, java("HttpFetch.java"))


@case("wrk", "wrk", "nginx")
def wrk_client(net: Lab, family: int) -> None:
    server = net.peer(*PYTHON_SERVER, net.their_host[family], str(port := a_port()))
    net.listens(server, port)
    client = net.run("wrk", "-t", "2", "-c", "16", "-d", "2s", f"http://{bracketed(net.their_host[family])}:{port}/100")
    text = net.done(client, LIMIT_S)
    assert "Socket errors" not in text and "Non-2xx" not in text and "Requests/sec" in text, text
    proved(counted(client), tcp_opened_active=16, tcp_rx_bytes=1000)
    server.kill()


# ---- the table ----------------------------------------------------------------------------------------------------------------


def chosen() -> list[object]:
    return [
        pytest.param(found, family, id=f"{found.name}-{family}") for found in CASES for family in (found.families if LONG else found.quick)
    ]


@pytest.mark.parametrize(("found", "family"), chosen())
def test_program(net: Lab, found: Case, family: int) -> None:
    absent = missing(*found.needs)
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")
    try:
        found.work(net, family)
        print(f"{found.name}, IPv{family}: works offloaded")
    except BaseException:
        for program in net.programs[-4:]:
            print(f"--- {' '.join(program.command)}\n{program.text[-3000:]}")
        raise
    finally:
        net.end_all()
