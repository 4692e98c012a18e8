"""One end of asyncio's conversations, as a program: python asyncio_ends.py serve|connect LOOP HOST [PORT TLS_PORT UDP_PORT].

LOOP: "std" for asyncio over the kernel's sockets, else a mode of pyvma.asyncio, with PYVMA_INTERFACES. `serve` echoes and prints its
ports; `connect` talks to it and prints "ok".
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from loops import Datagrams, Echo, Recorder, tls_contexts, until


class EchoDatagrams(Datagrams):
    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(data, addr)


async def serve(host: str) -> None:
    loop = asyncio.get_running_loop()
    plain = await loop.create_server(Echo, host, 0)
    tls = await loop.create_server(Echo, host, 0, ssl=tls_contexts()[0])
    udp, _ = await loop.create_datagram_endpoint(EchoDatagrams, local_addr=(host, 0))
    print(*(server.sockets[0].getsockname()[1] for server in (plain, tls)), udp.get_extra_info("sockname")[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    plain.close()
    tls.close()
    udp.close()
    await asyncio.sleep(0)


async def talk(host: str, port: int, size: int, tls: Any = None) -> None:
    transport, protocol = await asyncio.get_running_loop().create_connection(
        Recorder, host, port, ssl=tls, server_hostname="localhost" if tls else None
    )
    data = bytes(i * 7 & 0xFF for i in range(size))
    transport.write(data)
    await until(lambda: len(protocol.data) == size or protocol.lost)
    assert protocol.data == data, (len(protocol.data), protocol.error)
    if not tls:
        transport.write_eof()
    else:
        transport.close()
    await until(lambda: protocol.lost)
    assert protocol.error is None, protocol.error


async def connect(host: str, port: int, tls_port: int, udp_port: int) -> None:
    for size in (1, 1000, 2_000_000):
        await talk(host, port, size)
    await talk(host, tls_port, 1_000_000, tls_contexts()[1])
    await asyncio.gather(*(talk(host, port, 10_000) for _ in range(30)))
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(Datagrams, remote_addr=(host, udp_port))
    for i in range(20):
        transport.sendto(b"%d" % i)
        await until(lambda i=i: len(protocol.got) == i + 1)
    transport.close()
    await until(lambda: protocol.lost)
    print("ok", flush=True)


def main() -> None:
    role, kind, host, *ports = sys.argv[1:]
    work = serve(host) if role == "serve" else connect(host, *map(int, ports))
    if kind == "std":
        asyncio.run(asyncio.wait_for(work, 60))
        return
    import pyvma
    import pyvma.asyncio

    loop = pyvma.asyncio.EventLoop(mode=kind)
    try:
        loop.run_until_complete(asyncio.wait_for(work, 60))
    finally:
        loop.close()
    counted = pyvma.counters()
    assert counted["tcp.rx_bytes"] > 1_000_000 and counted["udp.rx_datagrams"] >= 20, counted


if __name__ == "__main__":
    main()
