"""tools/sockperf_agreement.py: what it starts is gone afterwards."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import sockperf_agreement

from pyvma._cli._veth import VethPair


class Endless:
    """Stands where the pair of namespaces does: whatever is run in it sleeps."""

    hosts = ("127.0.0.1", "127.0.0.1")

    def inside(self, number: int) -> list[str]:
        return ["sh", "-c", "exec sleep 60", f"namespace {number}"]


@pytest.mark.parametrize("case", ["clients", "after_each_other", "seen"])
def test_sockperfs_client_is_gone_after_an_error(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    popen = sockperf_agreement.subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    def broken(*_: Any, **__: Any) -> Any:
        raise ConnectionError("broken")

    @contextlib.contextmanager
    def server(*_: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 1, {}

    bench = sockperf_agreement.Bench(cast(VethPair, Endless()), 64)
    monkeypatch.setattr(sockperf_agreement.subprocess, "Popen", noted)
    monkeypatch.setattr(sockperf_agreement, "SLEEP_S", sockperf_agreement.EARLY_S)
    for name in ("ours", "finished"):
        monkeypatch.setattr(bench, name, broken)
    monkeypatch.setattr(bench, "server", server)
    with pytest.raises(ConnectionError):
        getattr(bench, case)("udp", "ping-pong", *[1] * (case != "seen"))
    assert [process.returncode for process in started] == [-9]
    assert started[0].stdout.closed
