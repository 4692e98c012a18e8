"""The preload library and the engine under ASAN with UBSAN, and under TSAN: the contract, jumps out of handlers, redis and nginx.

With PYVMA_TEST_LONG=1, and built: `for p in asan tsan; do cmake --preset $p && ninja -C build/$p pyvma_preload; done`."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest
from c_programs import peer, programs_in, ran
from lab import LONG
from netns import usable
from preload_lab import Lab, bracketed, counted, lab, missing
from python_programs import Program, environment
from test_contract import known, lines
from test_contract import program as contract  # noqa: F401
from veth import ENGINE, KERNEL, namespaces

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240.0
FINDS = 66  # the status of a program in which something was found

pytestmark = [
    pytest.mark.skipif(not LONG, reason="takes minutes: PYVMA_TEST_LONG=1"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
    pytest.mark.timeout(900),
]


@dataclass(frozen=True)
class Sanitizer:
    """Environment of a program under it; what it found goes to files."""

    env: dict[str, str]
    folder: Path

    def found(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("found*")))


def runtime(name: str) -> str:
    """Of the compiler's."""
    return subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(params=["asan", "tsan"])
def sanitizer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sanitizer]:
    library = ROOT / "build" / request.param / "libpyvma_preload.so"
    if not library.exists():
        pytest.skip(f"not built: ninja -C build/{request.param} pyvma_preload")
    folder = tmp_path / "sanitizer"
    folder.mkdir(mode=0o777)
    common = f"log_path={folder}/found:exitcode={FINDS}:detect_leaks=0"
    env = {
        # Ours is first, so that what it calls is the sanitizer's. A close in a handler frees memory: doc/preload.md.
        "LD_PRELOAD": f"{library} {runtime(f'lib{request.param}.so')}",
        "ASAN_OPTIONS": f"{common}:verify_asan_link_order=0",
        "UBSAN_OPTIONS": f"{common}:print_stacktrace=1:halt_on_error=1",
        "TSAN_OPTIONS": f"{common}:report_signal_unsafe=0:suppressions={ROOT}/tests/native/tsan.supp",
        "PYVMA_INTERFACES": "xdp:device=v0",
    }
    made = Sanitizer(env, folder)
    yield made
    assert not made.found(), made.found()[:20000]


def test_contract(sanitizer: Sanitizer, contract: Path) -> None:  # noqa: F811
    kernel = lines(contract, {"PATH": os.environ["PATH"]})
    ours = lines(contract, {"PATH": os.environ["PATH"], **sanitizer.env})
    assert ours.keys() == kernel.keys()
    patterns = [pattern.removeprefix("~ ") for pattern in known()]
    differ = [name for name in kernel if ours[name] != kernel[name] and not any(fnmatch(name.split(" ")[1], p) for p in patterns)]
    assert not differ, [(name, kernel[name], ours[name]) for name in differ[:20]]


# Left out of `edges` are cancelled and cancelled_among: a thread that is cancelled in a call of the kernel's leaves TSan's interceptor of
# it, which does not see it go (BlockingCall), and from there on mutexes that the thread takes are none to TSan: it reports a mutex and a
# counter of a program without any library so. And a report is written by cancellation points: a thread that ends there leaves TSan's own
# lock held. Left out of `jumps` is what asks for the signals blocked in a handler: TSan blocks all, whatever sigaction said; and
# handlers_poll: TSan calls a handler when the thread next calls the C library, which may be within the engine, where a poll answers EAGAIN.
EDGES = (
    *("execs_twice", "spawns", "shells", "careless", "forked_asleep", "handler_writes", "handler_closes", "handler_waits"),
    *("cancelled_before", "cancelled_waits", "cancelled_by_itself", "cancelled_while_off"),
)
JUMPS = ("at_any_moment", "out_of_many", "within_a_handler", "signals_of_input", "signals_refused")


@pytest.mark.parametrize("name", ["calls", "edges", "jumps"])
def test_programs(sanitizer: Sanitizer, tmp_path: Path, name: str) -> None:
    tsan = "tsan" in sanitizer.env["LD_PRELOAD"]
    folder = programs_in(tmp_path, name, "peer")
    cases = {"edges": EDGES, "jumps": JUMPS}.get(name, ()) if tsan else ()
    with namespaces() as (here, there), peer(there, folder / "peer"):
        text = ran(here, sanitizer.env, str(folder / name), ENGINE[4], ENGINE[6], KERNEL[4], KERNEL[6], *cases)
    assert all(line.startswith("ok ") for line in text.splitlines()), text


def started(net: Lab, env: dict[str, str], *command: str) -> Program:
    """In the engine's namespace, and nothing of it in `ip`."""
    folder = net.folder / f"{len(net.programs)}-{secrets.token_hex(4)}"
    settings = [f"{name}={value}" for name, value in {**env, "PYVMA_EXIT_STATS": str(folder / "engine")}.items()]
    program = Program(net.here, folder, ["env", *settings, *command], environment())
    net.programs.append(program)
    return program


@pytest.mark.parametrize("family", [4, 6])
def test_redis(sanitizer: Sanitizer, tmp_path: Path, family: int) -> None:
    """With a child that saves meanwhile."""
    if absent := missing("redis-server", "redis-benchmark", "redis-cli"):
        pytest.skip(f"not installed: {absent}")
    with lab(tmp_path) as net:
        host, port = net.our_host[family], str(20000 + secrets.randbelow(10000))
        where = ["-h", host, "-p", port]
        redis = ["redis-server", "--port", port, "--bind", host, "--protected-mode", "no", "--save", "", "--dir", str(tmp_path)]
        server = started(net, sanitizer.env, *redis)
        net.listens(server, int(port))
        load = net.peer("redis-benchmark", *where, "-n", "5000", "-c", "20", "-t", "set,get,lrange_100", "-r", "1000", "-q")
        assert "Background saving started" in net.ask("redis-cli", *where, "bgsave", limit_s=LIMIT_S)
        assert "rror" not in net.done(load, LIMIT_S)
        server.end(signal.SIGTERM, LIMIT_S)
        assert counted(server)["tcp.opened_passive"] >= 20


@pytest.mark.parametrize("family", [4, 6])
def test_nginx(sanitizer: Sanitizer, tmp_path: Path, family: int) -> None:
    """A master and two workers, which a reload replaces under load."""
    if absent := missing("nginx", "wrk"):
        pytest.skip(f"not installed: {absent}")
    with lab(tmp_path) as net:
        port, folder = 20000 + secrets.randbelow(10000), tmp_path / "nginx"
        folder.mkdir()
        listen = f"{bracketed(net.our_host[family])}:{port}"
        config = folder / "conf"
        paths = " ".join(f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        config.write_text(
            f"daemon off; user root; worker_processes 2; pid {folder}/pid; error_log {folder}/log;\nevents {{ }}\n"
            f'http {{ access_log off; {paths} server {{ listen {listen}; location / {{ return 200 "hello\\n"; }} }} }}\n'
        )
        server = started(net, sanitizer.env, "nginx", "-p", str(folder), "-c", str(config), "-e", str(folder / "log"))
        net.listens(server, port)
        load = net.peer("wrk", "-t", "1", "-c", "16", "-d", "6s", "--timeout", "30s", f"http://{listen}/")
        server.process.send_signal(signal.SIGHUP)
        text = net.done(load, LIMIT_S)
        assert "Non-2xx" not in text and "Requests/sec" in text, text
        server.end(signal.SIGQUIT, LIMIT_S)
        assert counted(server)["tcp.opened_passive"] >= 1
