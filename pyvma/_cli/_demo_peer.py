"""One of the two processes of `pyvma demo`: `python -m pyvma._cli._demo_peer JSON`.

JSON: role ("client" or "server"), stack ("pyvma" or "kernel"), spin, host, peer ([host, port]), size, seconds, cpu (or null), interface.
Prints one line of JSON: the server its port and later its counts, the client its round trips in nanoseconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

GOODBYE = b"goodbye"
WAIT_S = 20.0


def open_socket(task: dict[str, Any]) -> Any:
    """A bound datagram socket of the stack asked for."""
    if task["stack"] == "pyvma":
        import pyvma
        import pyvma.socket as socket

        # A blocking receive polls the queue pair for as long as it takes: that is what the engine is for.
        pyvma.configure(interfaces=[task["interface"]], rx_poll=-1)
    else:
        import socket  # type: ignore[no-redef]
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((task["host"], 0))
    return sock


def receiver(sock: Any, spin: bool) -> Any:
    """A function that fills a buffer with the next datagram, by blocking or by asking again and again."""
    receive = sock.recv_into
    if not spin:
        sock.settimeout(WAIT_S)
        return receive
    sock.setblocking(False)

    def poll(buffer: bytearray) -> int:
        while True:
            try:
                return int(receive(buffer))
            except BlockingIOError:
                continue

    return poll


def serve(sock: Any, task: dict[str, Any]) -> dict[str, Any]:
    print(json.dumps({"port": sock.getsockname()[1]}), flush=True)
    # The first datagram tells who the client is.
    sock.settimeout(WAIT_S)
    data, peer = sock.recvfrom(task["size"])
    sock.connect(peer)
    sock.send(data)
    receive, buffer, count = receiver(sock, task["spin"]), bytearray(task["size"]), 1
    view = memoryview(buffer)
    while (length := receive(buffer)) != len(GOODBYE):
        sock.send(view[:length])
        count += 1
    return {"datagrams": count}


def ask(sock: Any, task: dict[str, Any]) -> dict[str, Any]:
    sock.connect(tuple(task["peer"]))
    receive, send, now = receiver(sock, task["spin"]), sock.send, time.perf_counter_ns
    message, buffer = b"p" * task["size"], bytearray(task["size"])
    times: list[int] = []
    deadline = now() + int(task["seconds"] * 1e9)
    while (started := now()) < deadline:
        send(message)
        receive(buffer)
        times.append(now() - started)
    send(GOODBYE)
    # The first hundred find neighbours, caches and clocks cold.
    return {"round_trips_ns": sorted(times[100:]), "datagrams": len(times)}


def main() -> None:
    task = json.loads(sys.argv[1])
    if task["cpu"] is not None:
        os.sched_setaffinity(0, {task["cpu"]})
    sock = open_socket(task)
    result = serve(sock, task) if task["role"] == "server" else ask(sock, task)
    result["offloaded"] = bool(getattr(sock, "offload", False))
    result["offload"] = str(getattr(sock, "offload", "kernel sockets"))
    if task["stack"] == "pyvma":
        import pyvma

        result["engine"] = {name: value for name, value in pyvma.counters().items() if name.startswith("udp.")}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
