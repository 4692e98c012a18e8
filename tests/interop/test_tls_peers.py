"""TLS of the engine's streams with peers that nobody here wrote, on sockets of the kernel's in a namespace of their own: Python's ssl,
the command openssl, curl. By the software NIC's uplink and by AF_XDP over a veth pair."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uplink
import veth
from certificates import HOSTNAME, Certificates
from exchange import ACCEPT, CONNECT, LISTEN, Ends
from lab import LONG
from netns import usable
from programs import ended

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.timeout(1500 if LONG else 240),
]

BULK = 100 << 20 if LONG else 4 << 20
LIMIT_S = 60.0
PORT = 8443
FAMILIES = [4, 6]
VERSIONS = ["TLSv1_2", "TLSv1_3"]

CONTEXTS = """
def server_context(version=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return limited(context, version)
def client_context(version=None):
    return limited(ssl.create_default_context(cafile=authority), version)
def limited(context, version):
    if version:
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    return context
"""
WRAP_SERVER = "s = server_context(version).wrap_socket(s, server_side=True)\ns.version()"
WRAP_CLIENT = "s = client_context(version).wrap_socket(s, server_hostname='server.test')\ns.version()"
SEND = "import random\ns.sendall(random.Random(seed).randbytes(size))"
RECEIVE = """
import hashlib
digest, left, buffer = hashlib.sha256(), size, bytearray(1 << 16)
while left and (n := s.recv_into(buffer, min(left, len(buffer)))):
    digest.update(memoryview(buffer)[:n])
    left -= n
digest.hexdigest()
"""
ECHO_LINES = """
with s.makefile("rwb") as stream:
    lines = []
    for line in stream:
        lines.append(line)
        if line == b"the end\\n":
            break
        stream.write(line.upper())
        stream.flush()
[len(lines), s.version(), s.session_reused]
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(
        tmp_path_factory.mktemp("tls"), [host for side in (uplink, veth) for host in (*side.ENGINE.values(), *side.KERNEL.values())]
    )


@pytest.fixture(scope="module", params=["uplink", "xdp"])
def net(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Ends]:
    with (veth if request.param == "xdp" else uplink).pair() as ends:
        for actor, module in ((ends.engine, "pyvma.ssl"), (ends.kernel, "ssl")):
            actor(f"import {module} as ssl\n{CONTEXTS}", certificate=str(certificates.server), authority=str(certificates.authority))
        yield ends


def address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def digest(seed: int, size: int) -> str:
    return hashlib.sha256(random.Random(seed).randbytes(size)).hexdigest()


def close(net: Ends) -> None:
    for actor in (net.engine, net.kernel):
        actor("for name in ('s', 'l'):\n    if name in globals():\n        globals()[name].close()")


@contextmanager
def openssl(net: Ends, *arguments: str) -> Iterator[Program]:
    """The command in the kernel's namespace, for a conversation."""
    command = ["ip", "netns", "exec", net.kernel_ns.name, "stdbuf", "-oL", "openssl", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield Program(process)
        finally:
            ended(process)


class Program:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.said = process, b""
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def wait_for(self, text: str) -> None:
        """Until it has said this since the last time."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + LIMIT_S
        while text.encode() not in self.said:
            with suppress(BlockingIOError):
                self.said += os.read(self.process.stdout.fileno(), 65536)
            assert time.monotonic() < deadline, self.said
            time.sleep(0.005)
        self.said = self.said.partition(text.encode())[2]


# ---- Python's own ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("engine_serves", [True, False], ids=["server", "client"])
@pytest.mark.parametrize("family", FAMILIES)
def test_bulk_with_the_standard_library(net: Ends, family: int, engine_serves: bool, version: str) -> None:
    net.connect(family, engine_serves)
    ends = (net.engine, net.kernel) if engine_serves else (net.kernel, net.engine)
    ends[0].start(WRAP_SERVER, version=version)
    assert ends[1](WRAP_CLIENT, version=version) == ends[0].finish()
    for sender, receiver, seed in ((net.engine, net.kernel, 1), (net.kernel, net.engine, 2)):
        sender.start(SEND, seed=seed, size=BULK)
        assert receiver(RECEIVE, size=BULK, limit_s=LIMIT_S) == digest(seed, BULK)
        sender.finish(LIMIT_S)
    assert net.engine("bool(s.offload)")
    ends[1].start("s = s.unwrap()\ntype(s).__name__")
    assert ends[0]("assert s.recv(1) == b''\ns = s.unwrap()\ntype(s).__name__") == ends[1].finish() == "SSLSocket"
    net.engine("s.sendall(b'clear')")
    assert net.kernel("s.recv(5, socket.MSG_WAITALL)") == b"clear"
    close(net)


# ---- the command openssl -----------------------------------------------------------------------------------------------------


def serve_openssl(net: Ends, family: int, version: str, *options: str) -> Any:
    """s_client talks to the engine; what the engine's end says of it."""
    port = net.engine(LISTEN, family=family, host=net.engine_host[family])
    net.engine.start(f"{ACCEPT}\n{WRAP_SERVER}\n{ECHO_LINES}", version=version)
    target = f"{address(net.engine_host[family])}:{port}"
    with openssl(net, "s_client", "-connect", target, "-servername", HOSTNAME, "-verify_return_error", *options) as program:
        program.wait_for("Verify return code: 0 (ok)")
        program.tell("first")
        program.wait_for("FIRST")
        if version == "TLSv1_3":
            for number in range(3):
                program.tell("K")  # both ends change their keys
                program.wait_for("KEYUPDATE")
                program.tell(f"after {number}")
                program.wait_for(f"AFTER {number}")
        program.tell("the end")
        result = net.engine.finish()
    close(net)
    return result


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_s_client(net: Ends, certificates: Certificates, family: int, version: str) -> None:
    count = 5 if version == "TLSv1_3" else 2
    answer = serve_openssl(net, family, version, "-CAfile", str(certificates.authority))
    assert answer == [count, version.replace("_", "."), False]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_s_server(net: Ends, certificates: Certificates, family: int, version: str) -> None:
    """Its commands change keys (TLS 1.3), or make a new handshake in the middle (TLS 1.2), while the engine reads."""
    target = f"{address(net.kernel_host[family])}:{PORT}"
    named = version.lower().replace("tlsv", "-tls")
    with openssl(net, "s_server", "-accept", target, "-cert", str(certificates.server), "-alpn", "h2,one", named) as program:
        program.wait_for("ACCEPT")
        net.engine(CONNECT, family=family, host=net.kernel_host[family], port=PORT)
        net.engine("context = client_context()\ncontext.set_alpn_protocols(['one', 'two'])")
        assert net.engine("s = context.wrap_socket(s, server_hostname='server.test')\ns.selected_alpn_protocol()") == "one"
        net.engine("s.sendall(b'from the engine\\n')")
        program.wait_for("from the engine")
        for number in range(3):
            net.engine.start("s.recv(100)")
            program.tell("K" if version == "TLSv1_3" else "r")
            program.wait_for("SSL_do_handshake -> 1")  # what follows a command at once is taken for a part of it
            program.tell(f"number {number}")
            assert net.engine.finish() == f"number {number}\n".encode()
            net.engine("s.sendall(text)", text=f"answer {number}\n".encode())
            program.wait_for(f"answer {number}")
        net.engine.start("s.recv(100)")
        program.tell("Q")
        assert net.engine.finish() == b""
    close(net)


@pytest.mark.parametrize("version", VERSIONS)
def test_sessions_of_s_client(net: Ends, certificates: Certificates, version: str, tmp_path: Path) -> None:
    """A session that openssl keeps in a file is taken up again."""
    net.engine("context = server_context(version)\nserver_context = lambda version: context", version=version)
    try:
        session = str(tmp_path / "session")
        options = ("-CAfile", str(certificates.authority))
        assert serve_openssl(net, 4, version, *options, "-sess_out", session)[2] is False
        assert serve_openssl(net, 4, version, *options, "-sess_in", session)[2] is True
    finally:
        net.engine(CONTEXTS)


# ---- curl --------------------------------------------------------------------------------------------------------------------

SERVER = """
import hashlib, http.server, socketserver
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
    def __init__(self, address, handler):
        socketserver.BaseServer.__init__(self, address, handler)
        listener = socket.create_server(address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        self.socket = server_context().wrap_socket(listener, server_side=True, do_handshake_on_connect=False)
        self.server_name, self.server_port = address[0], self.socket.getsockname()[1]
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def __init__(self, *args):
        super().__init__(*args, directory=folder)
    def do_PUT(self):
        digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
        while left:
            piece = self.rfile.read(min(left, 1 << 16))
            digest.update(piece)
            left -= len(piece)
        answer = digest.hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
server = Server((host, 0), Handler)
thread = threading.Thread(target=server.serve_forever)
thread.start()
server.server_port
"""


@pytest.mark.parametrize("family", FAMILIES)
def test_curl(net: Ends, certificates: Certificates, family: int, tmp_path: Path) -> None:
    data = random.Random(family).randbytes(BULK)
    (tmp_path / "file").write_bytes(data)
    port = net.engine(SERVER, host=net.engine_host[family], folder=str(tmp_path))
    try:
        url = f"https://{HOSTNAME}:{port}/file"
        name = ("--resolve", f"{HOSTNAME}:{port}:{address(net.engine_host[family])}")
        curl = ("curl", "-sS", "--fail", "--max-time", str(int(LIMIT_S)), "--cacert", str(certificates.authority), *name)
        got = tmp_path / "got"
        text = net.kernel_ns.run(*curl, "-o", str(got), url, "-w", "%{ssl_verify_result}", limit_s=LIMIT_S)
        assert (text, got.read_bytes() == data) == ("0", True)
        assert net.kernel_ns.run(*curl, "-T", str(tmp_path / "file"), url, limit_s=LIMIT_S) == hashlib.sha256(data).hexdigest()
        refused = net.kernel_ns.run("curl", "-sS", *name, url, limit_s=LIMIT_S, check=False)
        assert "SSL certificate problem" in refused
    finally:
        net.engine("server.shutdown()\nthread.join()\nserver.server_close()")
