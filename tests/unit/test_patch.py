"""pyvma.patch(): what it sets in the standard library's modules, what it leaves, and the way back. Each case is a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from lab import softnic_reason

Env = dict[str, str]
LIMIT_S = 100
softnic = pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there")


def ran(env: Env, code: str, *arguments: str) -> str:
    """What the code prints; it must not fail, nor warn."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments], env=env, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.fixture
def offloaded(clean_env: Env, fabric: str) -> Env:
    """Two interfaces of a software NIC: 10.77.0.1 and 10.77.0.2."""
    interfaces = ";".join(f"softnic:fabric={fabric},port={n},addr=10.77.0.{n + 1}/24" for n in range(2))
    return {**clean_env, "PYVMA_INTERFACES": interfaces}


def test_names_classes_and_the_way_back(clean_env: Env) -> None:
    ran(
        clean_env,
        """
        import asyncio, select, selectors, socket, ssl, sys, uvloop
        base = uvloop.Loop
        modules = {"socket": socket, "select": select, "selectors": selectors}
        before = {name: dict(vars(module)) for name, module in modules.items()}
        wrapper, policy = ssl.SSLContext.sslsocket_class, asyncio.get_event_loop_policy()
        made_before = socket.socket()
        import pyvma, pyvma.asyncio, pyvma.select, pyvma.selectors, pyvma.socket, pyvma.ssl
        first = pyvma.patch()
        changed = {f"{name}.{key}" for name, old in before.items() for key in old if vars(modules[name])[key] is not old[key]}
        assert changed | {"ssl.SSLContext.sslsocket_class", "asyncio: the policy", "uvloop.Loop"} == set(first.replaced), (changed, first)
        assert first.held == ()
        assert select.epoll is pyvma.select.epoll and selectors.DefaultSelector is pyvma.selectors.DefaultSelector
        assert ssl.SSLContext.sslsocket_class is pyvma.ssl.SSLSocket
        assert issubclass(pyvma.ssl.SSLSocket, ssl.SSLSocket)
        assert type(asyncio.get_event_loop_policy()) is pyvma.asyncio.EventLoopPolicy
        for made in (asyncio.new_event_loop, uvloop.new_event_loop, uvloop.EventLoopPolicy().new_event_loop):
            loop = made()
            assert type(loop) is pyvma.asyncio.EventLoop
            loop.close()
        async def running():
            return type(asyncio.get_running_loop())
        assert uvloop.run(running()) is pyvma.asyncio.EventLoop
        again = pyvma.patch()
        assert again.replaced == ()
        again.undo()
        assert select.epoll is pyvma.select.epoll
        ours, others = socket.socket(), pyvma.socket.socket()
        assert isinstance(ours, pyvma.socket.socket) and all(isinstance(s, socket.socket) for s in (ours, others, made_before))
        assert issubclass(ssl.SSLSocket, socket.socket) and not isinstance(3, socket.socket) and not issubclass(int, socket.socket)
        assert not isinstance(made_before, pyvma.socket.socket)
        pyvma.unpatch()
        assert {name: dict(vars(module)) for name, module in modules.items()} == before
        assert (ssl.SSLContext.sslsocket_class, asyncio.get_event_loop_policy(), uvloop.Loop) == (wrapper, policy, base)
        assert isinstance(ours, socket.socket)
        pyvma.unpatch()
        with pyvma.patch(select=False, ssl=False, asyncio=False) as only:
            assert {name.split(".")[0] for name in only.replaced} == {"socket", "selectors"}
            assert select.epoll is before["select"]["epoll"] and socket.socket is not before["socket"]["socket"]
        assert socket.socket is before["socket"]["socket"]
        for s in (made_before, ours, others):
            s.close()
        """,
    )


def test_what_others_put_there_meanwhile_stays(clean_env: Env) -> None:
    ran(
        clean_env,
        """
        import select, socket
        import pyvma
        pyvma.patch()
        class Wrapped(socket.socket):
            pass
        socket.socket = Wrapped
        pyvma.unpatch()
        assert socket.socket is Wrapped
        assert select.poll.__module__ == "select"
        """,
    )


def test_says_who_came_too_early(clean_env: Env) -> None:
    printed = ran(
        clean_env,
        """
        import sys, types, warnings
        early = types.ModuleType("early")
        exec("from socket import socket, create_connection\\nclass Mine(socket):\\n    pass", vars(early))
        early.Mine.__module__ = "early"
        sys.modules["early"] = early
        import pyvma
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            done = pyvma.patch()
        assert done.held == ("early.Mine", "early.socket"), done.held
        (warning,) = caught
        assert warning.category is pyvma.PatchWarning and warning.filename == "<string>"
        print(warning.message)
        import socket
        for sock in (early.socket(), early.Mine()):
            with sock:
                assert isinstance(sock, socket.socket) and not hasattr(sock, "offload")
        with socket.create_server(("127.0.0.1", 0)) as server, early.create_connection(server.getsockname()) as client:
            assert type(client) is socket.socket
        """,
    )
    assert printed == (
        "sockets of the standard library's are still used by early.Mine, early.socket: call pyvma.patch() before they are imported\n"
    )


def test_log(clean_env: Env) -> None:
    printed = ran(
        clean_env,
        """
        import logging, sys
        import pyvma
        logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(message)s")
        pyvma.patch(asyncio=False, ssl=False, selectors=False)
        """,
    )
    names = ["socket.socket", "select.select", "select.poll", "select.epoll"]
    assert printed.splitlines() == [f"pyvma replaced {name}" for name in names]


def test_subclasses(clean_env: Env) -> None:
    """Own __init__ and __slots__, accept and send overridden, an abstract class beside; instances of the class itself only."""
    ran(
        clean_env,
        """
        import abc, weakref
        import pyvma
        pyvma.patch()
        import socket
        class Named(abc.ABC):
            @property
            @abc.abstractmethod
            def name(self): ...
        class Mine(socket.socket, Named):
            __slots__ = ("label", "sent")
            def __init__(self, label, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.label, self.sent = label, 0
            name = property(lambda self: self.label)
            def accept(self):
                sock, address = super().accept()
                return Mine("accepted", sock.family, sock.type, sock.proto, fileno=sock.detach()), address
            def send(self, data, flags=0):
                self.sent += 1
                return super().send(data, flags)
        assert Named.register is not None and issubclass(Mine, Named)
        plain = socket.socket()
        assert not isinstance(plain, Mine) and not issubclass(socket.socket, Mine)
        plain.close()
        with Mine("a server") as server:
            assert isinstance(server, (socket.socket, Named)) and server.name == "a server" and weakref.ref(server)() is server
            server.bind(("127.0.0.1", 0))
            server.listen()
            with socket.create_connection(server.getsockname()) as client:
                peer, _ = server.accept()
                with peer:
                    assert type(peer) is Mine and peer.name == "accepted"
                    assert peer.send(b"x") == 1 and peer.sent == 1 and client.recv(10) == b"x"
        """,
    )


@softnic
def test_sockets_of_the_standard_functions_are_offloaded(offloaded: Env) -> None:
    ran(
        offloaded,
        """
        import pyvma
        pyvma.patch()
        import socket
        from socket import create_connection
        with socket.create_server(("10.77.0.1", 0)) as server:
            with create_connection(server.getsockname(), 20, ("10.77.0.2", 0)) as client:
                peer, _ = server.accept()
                with peer, client.dup() as copy:
                    assert {type(s) for s in (server, client, peer, copy)} == {socket.socket}
                    assert server.offload and client.offload and peer.offload and copy.offload
                    copy.sendall(b"offloaded")
                    assert peer.recv(20) == b"offloaded"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(("10.77.0.1", 0))
            assert datagrams.offload
        """,
    )


@softnic
def test_modules_that_make_sockets(offloaded: Env) -> None:
    """Servers and clients of the standard library talk over the engine."""
    ran(
        offloaded,
        """
        import pyvma
        pyvma.patch()
        import concurrent.futures, http.client, http.server, logging.handlers, pickle, queue, socket, socketserver, struct, threading
        import urllib.request, xmlrpc.client, xmlrpc.server

        class Serving:
            def __init__(self, server):
                self.server, self.thread = server, threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            def __enter__(self):
                assert self.server.socket.offload, self.server.socket.offload
                self.thread.start()
                return self.server.server_address
            def __exit__(self, *args):
                self.server.shutdown()
                self.thread.join()
                self.server.server_close()

        class Hello(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", "100000")
                self.end_headers()
                self.wfile.write(b"h" * 100000)
            log_message = lambda *args: None
        def get(url):
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.read()
        with Serving(http.server.ThreadingHTTPServer(("10.77.0.1", 0), Hello)) as (host, port):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                assert set(pool.map(get, [f"http://{host}:{port}/"] * 12)) == {b"h" * 100000}
            kept = http.client.HTTPConnection(host, port, timeout=60, source_address=("10.77.0.2", 0))
            for _ in range(5):
                kept.request("GET", "/")
                assert kept.sock.offload and len(kept.getresponse().read()) == 100000
            kept.close()

        calls = xmlrpc.server.SimpleXMLRPCServer(("10.77.0.1", 0), logRequests=False)
        calls.register_function(pow)
        with Serving(calls) as (host, port), xmlrpc.client.ServerProxy(f"http://{host}:{port}/") as proxy:
            assert proxy.pow(2, 10) == 1024

        got = queue.Queue()
        class Records(socketserver.StreamRequestHandler):
            def handle(self):
                size, = struct.unpack(">L", self.rfile.read(4))
                got.put(pickle.loads(self.rfile.read(size))["msg"])
        with Serving(socketserver.ThreadingTCPServer(("10.77.0.1", 0), Records)) as (host, port):
            handler = logging.handlers.SocketHandler(host, port)
            handler.emit(logging.LogRecord("n", logging.INFO, "f", 1, "over the ring", (), None))
            handler.close()
            assert got.get(timeout=60) == "over the ring"

        class Echo(socketserver.DatagramRequestHandler):
            def handle(self):
                self.wfile.write(self.rfile.read().upper())
        with Serving(socketserver.UDPServer(("10.77.0.1", 0), Echo)) as address, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.bind(("10.77.0.2", 0))
            client.settimeout(60)
            client.sendto(b"datagram", address)
            assert client.recv(100) == b"DATAGRAM"

        assert pyvma.counters()["tcp.opened_passive"] >= 8
        """,
    )


def test_what_is_no_socket_of_the_engines(clean_env: Env) -> None:
    ran(
        clean_env,
        """
        import pyvma
        pyvma.patch()
        import os, signal, socket, subprocess
        assert subprocess.run(["cat"], input=b"x" * 300000, capture_output=True, timeout=60).stdout == b"x" * 300000
        a, b = socket.socketpair()
        a.setblocking(False)
        signal.set_wakeup_fd(a.fileno())
        signal.signal(signal.SIGUSR1, lambda *_: None)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert b.recv(1) == bytes([signal.SIGUSR1])
        signal.set_wakeup_fd(-1)
        socket.send_fds(a, [b"f"], [0])
        data, fds, _, _ = socket.recv_fds(b, 10, 1)
        assert data == b"f" and len(fds) == 1
        os.close(fds[0])
        a.close()
        b.close()
        """,
    )


@softnic
def test_asyncio_with_and_without_our_loop(offloaded: Env) -> None:
    """The standard library's own loop knows our sockets by our selectors."""
    ran(
        offloaded,
        """
        import pyvma
        pyvma.patch()
        import asyncio
        async def echo(reader, writer):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        async def main():
            server = await asyncio.start_server(echo, "10.77.0.1", 0)
            async with server:
                address = server.sockets[0].getsockname()
                reader, writer = await asyncio.open_connection(*address, local_addr=("10.77.0.2", 0))
                writer.write(b"x" * 1000000)
                writer.write_eof()
                assert await asyncio.wait_for(reader.read(), 60) == b"x" * 1000000
                writer.close()
                await writer.wait_closed()
        for count, made in enumerate((asyncio.new_event_loop, asyncio.SelectorEventLoop), 1):
            loop = made()
            loop.run_until_complete(main())
            loop.close()
            assert pyvma.counters()["tcp.opened_passive"] == count
        """,
    )


def test_multiprocessing(clean_env: Env) -> None:
    """Fork and spawn, pipes and queues, and a kernel's socket passed on, whether multiprocessing was imported before or after."""
    for first, second in (("import pyvma; pyvma.patch()", "pass"), ("import multiprocessing.reduction", "import pyvma; pyvma.patch()")):
        ran(
            clean_env,
            f"""
            {first}
            {second}
            import multiprocessing, os, pickle, socket
            from multiprocessing.reduction import ForkingPickler
            fork = multiprocessing.get_context("fork")
            def child(pipe, queue, sock):
                sock.sendall(b"from the child")
                queue.put(pipe.recv())
            a, b = socket.socketpair()
            here, there = fork.Pipe()
            queue = fork.Queue()
            process = fork.Process(target=child, args=(there, queue, b))
            process.start()
            here.send("through")
            assert queue.get(timeout=60) == "through" and a.recv(100) == b"from the child"
            process.join()
            assert process.exitcode == 0
            with fork.Pool(2) as pool:
                assert pool.map(abs, [-1, -2]) == [1, 2]
            passed = pickle.loads(ForkingPickler.dumps(b))
            passed.sendall(b"passed on")
            assert type(passed) is socket.socket and a.recv(100) == b"passed on"
            from multiprocessing.connection import Client, Listener
            with Listener(("127.0.0.1", 0)) as listener, Client(listener.address) as client, listener.accept() as peer:
                client.send([1, 2])
                assert peer.poll(60) and peer.recv() == [1, 2]
            for s in (a, b, passed):
                s.close()
            queue.close()
            queue.join_thread()
            here.close()
            there.close()
            """,
        )
