"""Rules in VMA's grammar on an interface that the kernel owns, with Linux at the other end: what they take is the kernel's, works, and
names its rule; what they leave is the stack's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from netns import usable
from veth import ENGINE, KERNEL, Veth, pair

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

RULES = f"""
# only others'
application-id no-such-program *
use os tcp_server *:*
application-id * other
use os tcp_server *:*

application-id * mine
use vma tcp_server *:7001
use os tcp_server *:7000-7010
use os tcp_client {KERNEL[4]}/32:7100
use os tcp_client [{KERNEL[6]}]:7100-7109:[{ENGINE[6]}/64]:*
use os tcp_client *:7100:10.0.0.0/24:*
use os udp_receiver *:7200
use os udp_connect *:53
use os udp_sender {KERNEL[4]}/24:7300
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "r.conf"
    path.write_text(RULES)
    return path


@pytest.fixture(scope="module")
def net(file: Path) -> Iterator[Veth]:
    with pair(env={"PYVMA_RULES_FILE": str(file), "VMA_APPLICATION_ID": "mine", "PYVMA_STRICT": "1"}) as veth:
        yield veth


def became(net: Veth, file: Path, rule: int | None) -> None:
    found = net.engine("s.offload.state, s.offload.text")
    assert tuple(found) == (("kernel", f"rule {rule} of {file}") if rule else ("offloaded", "xdp:v0")), found


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize(("port", "rule"), [(7000, 4), (7001, None), (7010, 4), (7011, None)])
def test_servers(net: Veth, file: Path, family: int, port: int, rule: int | None) -> None:
    for host in (ENGINE[family], {4: "0.0.0.0", 6: "::"}[family]):
        net.engine(
            "s = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6)\ns.settimeout(20)\n"
            "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\ns.bind((host, port))\ns.listen()",
            family=family,
            host=host,
            port=port,
        )
        became(net, file, rule)
        net.kernel("s = socket.create_connection((host, port), timeout=20)", host=ENGINE[family], port=port)
        net.engine("l = s\ns, _ = l.accept()\ns.sendall(b'hello')")
        assert net.kernel("s.recv(5)") == b"hello"
        assert net.engine("s.offload.state") == ("kernel" if rule else "offloaded")
        net.kernel("s.close()")
        net.engine("s.close(), l.close()")


@pytest.mark.parametrize(("family", "port", "rule"), [(4, 7100, 5), (4, 7101, None), (6, 7100, 6), (6, 7109, 6), (6, 7110, None)])
def test_clients(net: Veth, file: Path, family: int, port: int, rule: int | None) -> None:
    net.kernel(
        "l = socket.create_server((host, port), family=socket.AF_INET if family == 4 else socket.AF_INET6)",
        family=family,
        host=KERNEL[family],
        port=port,
    )
    net.engine("s = socket.create_connection((host, port), timeout=20)", host=KERNEL[family], port=port)
    became(net, file, rule)
    net.kernel("s, _ = l.accept(); s.sendall(b'hello')")
    assert net.engine("s.recv(5)") == b"hello"
    net.engine("s.close()")
    net.kernel("s.close(), l.close()")


@pytest.mark.parametrize(("port", "rule"), [(7200, 8), (7201, None)])
def test_receivers(net: Veth, file: Path, port: int, rule: int | None) -> None:
    net.engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, port))", host=ENGINE[4], port=port)
    became(net, file, rule)
    net.kernel("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.sendto(b'hello', (host, port))", host=ENGINE[4], port=port)
    assert net.engine("s.recv(10)") == b"hello"
    net.engine("s.close()")
    net.kernel("s.close()")


@pytest.mark.parametrize(("port", "rule"), [(53, 9), (54, None)])
def test_connected_datagrams(net: Veth, file: Path, port: int, rule: int | None) -> None:
    net.kernel("s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, port))", host=KERNEL[6], port=port)
    net.engine(
        "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.connect((host, port))", host=KERNEL[6], port=port
    )
    became(net, file, rule)
    net.engine("s.send(b'hello')")
    net.kernel("t, peer = s.recvfrom(10)[:2]; s.sendto(t + b'!', peer)")
    assert net.engine("s.recv(10)") == b"hello!"
    net.engine("s.close()")
    net.kernel("s.close()")


def test_each_datagram_s_destination(net: Veth, file: Path) -> None:
    """A socket that receives by the stack sends by the kernel what a rule says; one that has no name yet becomes the kernel's by it."""
    for port in (7300, 7301):
        net.kernel(
            f"s{port} = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns{port}.settimeout(20)\ns{port}.bind(({KERNEL[4]!r}, {port}))"
        )
    net.engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 0))", host=ENGINE[4])
    for port in (7300, 7301, 7300, 7301):
        net.engine("s.sendto(b'hello', (host, port))", host=KERNEL[4], port=port)
        net.kernel(f"t, peer = s{port}.recvfrom(10); s{port}.sendto(t + b'!', peer)")
        assert net.engine("s.recv(10)") == b"hello!"
    became(net, file, None)
    assert net.engine("s.stats['kernel_tx_datagrams'], s.stats['tx_datagrams']") == (2, 2)
    net.engine(
        "s.close()\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.sendto(b'x', (host, 7300))", host=KERNEL[4]
    )
    became(net, file, 10)
    assert net.kernel("s7300.recv(10)") == b"x"
    net.engine("s.close()")
    net.kernel("s7300.close(), s7301.close()")
