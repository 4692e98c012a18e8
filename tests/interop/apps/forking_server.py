"""A server that forks for each connection, as `http.server` on ForkingTCPServer: python -m pyvma forking_server.py HOST PORT BYTES."""

from __future__ import annotations

import http.server
import os
import random
import socket
import socketserver
import sys
import time
from contextlib import suppress

host, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
body = random.Random(size).randbytes(size)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.send_header("X-Process", str(os.getpid()))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


class Server(socketserver.ForkingTCPServer):
    address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
    allow_reuse_address = True
    max_children = 100


with Server((host, port), Handler) as server:
    print("serving", flush=True)
    with suppress(KeyboardInterrupt):
        server.serve_forever(0.2)
    # The children's ends belong to them; the engine's counters are written when this process ends.
    deadline = time.monotonic() + 20
    while server.active_children and time.monotonic() < deadline:
        server.collect_children()
        time.sleep(0.05)
