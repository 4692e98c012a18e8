"""A child process that runs code for a test: an engine of its own, a kernel peer in a network namespace, or a victim to kill.

    with Actor(["softnic:fabric=F,port=0,addr=10.1.0.1/24"]) as engine, Actor(netns="ns1") as kernel:
        engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.1.0.1', 0))")
        port = engine("s.getsockname()[1]")

`socket` in the child is pyvma.socket when interfaces are given and the standard library's when not. A call returns the value of the
last expression; exceptions come back as they are. `start`, then `finish`, let two children work at once.
"""

from __future__ import annotations

import ast
import os
import pickle
import select
import struct
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

CALL_LIMIT_S = 60.0
IMPORTS = "import errno, os, select, struct, threading, time\nimport {} as socket"


class Actor:
    """Starts at once. `env` is added to the environment; `netns` is the name of an `ip netns`."""

    def __init__(self, interfaces: list[str] | None = None, *, netns: str | None = None, env: dict[str, str] | None = None) -> None:
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        environment.pop("PYVMA_INTERFACES", None)
        environment.update(env or {})
        if interfaces is not None:
            environment["PYVMA_INTERFACES"] = ";".join(interfaces)
        command = ["ip", "netns", "exec", netns] if netns else []
        command += [sys.executable, str(Path(__file__)), "pyvma.socket" if interfaces is not None else "socket"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.pending = False

    def start(self, code: str, **names: Any) -> None:
        """Sends the code without waiting for its end. `names` are set in the child first."""
        assert not self.pending, "one call at a time"
        assert self.process.stdin is not None
        message = pickle.dumps((code, names))
        self.process.stdin.write(struct.pack("!I", len(message)) + message)
        self.process.stdin.flush()
        self.pending = True

    def finish(self, limit_s: float = CALL_LIMIT_S) -> Any:
        """Waits for what was started and returns its value or raises its exception."""
        self.pending = False
        (size,) = struct.unpack("!I", self._read(4, limit_s))
        value, error, trace = pickle.loads(self._read(size, limit_s))
        if error is not None:
            print(trace, file=sys.stderr)
            raise error
        return value

    def __call__(self, code: str, *, limit_s: float = CALL_LIMIT_S, **names: Any) -> Any:
        self.start(code, **names)
        return self.finish(limit_s)

    def _read(self, count: int, limit_s: float) -> bytes:
        assert self.process.stdout is not None
        got, deadline = b"", time.monotonic() + limit_s
        while len(got) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError(f"the child did not answer within {limit_s} s")
            piece = os.read(self.process.stdout.fileno(), count - len(got))
            if not piece:
                raise EOFError(f"the child ended with status {self.process.wait(5)}")
            got += piece
        return got

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)

    def __enter__(self) -> Actor:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def evaluate(code: str, names: dict[str, Any]) -> Any:
    """Runs the statements; the value is that of the last one when it is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<actor>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<actor>", "eval"), names) if isinstance(last, ast.Expr) else None


def serve(stdin: BinaryIO, stdout: BinaryIO, module: str) -> None:
    names: dict[str, Any] = {"__name__": "actor"}
    exec(IMPORTS.format(module), names)
    while header := stdin.read(4):
        code, given = pickle.loads(stdin.read(struct.unpack("!I", header)[0]))
        names.update(given)
        value, error, trace = None, None, ""
        try:
            value = evaluate(code, names)
        except BaseException as caught:
            error, trace = caught, traceback.format_exc()
        try:
            message = pickle.dumps((value, error, trace))
        except Exception:
            message = pickle.dumps((None, RuntimeError(f"{value!r} {error!r}"), trace))
        stdout.write(struct.pack("!I", len(message)) + message)
        stdout.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, sys.argv[1])
