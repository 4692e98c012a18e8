"""A program over the kernel, and over the stack whose addresses are its own there: what it prints must be the same."""

from __future__ import annotations

import secrets
import subprocess

from c_programs import LIMIT_S, inside
from netns import Namespace

HOSTS = ("10.9.9.1", "fd09::1")

BEGIN = """
import os, select, socket, struct, sys, time
hosts = ("10.9.9.1", "fd09::1")
TCP, SOL = socket.IPPROTO_TCP, socket.SOL_SOCKET
def said(call, *args):
    try:
        return call(*args)
    except OSError as error:
        return type(error).__name__, error.errno
def pair(host, prepare=lambda listener: None):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        prepare(listener)
        listener.bind((host, 0))
        listener.listen()
        c = socket.socket(family)
        c.connect(listener.getsockname())
        return c, listener.accept()[0]
def reset(s):
    s.setsockopt(SOL, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
    time.sleep(0.02)
"""


def interfaces() -> str:
    return f"softnic:fabric=linux{secrets.token_hex(4)},port=0,addr={HOSTS[0]}/24,addr={HOSTS[1]}/64"


def printed(ns: Namespace, env: dict[str, str], *command: str) -> list[str]:
    done = subprocess.run(inside(ns, env, *command), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
