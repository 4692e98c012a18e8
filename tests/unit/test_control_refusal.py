"""What a live process says before it hangs up reaches who asked."""

from __future__ import annotations

import os
import socket

import pytest

from pyvma._control import Control


@pytest.mark.parametrize("when", ["before the request", "with the request unread"])
def test_the_words_of_a_refusal(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The kernel reports a reset ahead of what was sent before it, when the other end leaves something unread (net/unix/af_unix.c)."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(Control, "_connect", staticmethod(lambda _pid: ours))
    control = Control(os.getpid())
    with ours:
        theirs.send(b"pyvma 1 error\ncode=11\ntext=16 connections are open\n")
        if when == "with the request unread":
            ours.send(b"pyvma 1 hello\n")
        theirs.close()
        with pytest.raises(BlockingIOError, match="connections are open"):
            control.ask("hello")
