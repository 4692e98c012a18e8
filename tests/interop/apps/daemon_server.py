"""Takes one connection, forks, and leaves it to the child by ending: python -m pyvma daemon_server.py HOST PORT MARK."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

host, port, mark = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
print("serving", flush=True)
connection, _ = listener.accept()
assert connection.recv(4, socket.MSG_WAITALL) == b"ping"
connection.sendall(b"pong")
parent = os.getpid()
if os.fork():
    sys.exit(0)
deadline = time.monotonic() + 60
while os.getppid() == parent and time.monotonic() < deadline:
    time.sleep(0.02)
listener.close()
while data := connection.recv(65536):
    connection.sendall(data)
mark.write_text("the child saw the end")
os._exit(0)
