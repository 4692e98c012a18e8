"""What the guide calls a setting, a reason or a command is one."""

from __future__ import annotations

import re
from pathlib import Path

import guide
import pytest

import pyvma
from pyvma import _cli, _config

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PROSE = {path: re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE) for path in DOCS.rglob("*.md")}
# In the pages of settings, what has an underscore and is none.
OTHER = {
    "recv_batch",
    "onload_stackdump",
    "onload_tcpdump",
    "recvfrom_zcopy",
    "free_packets",
    "socketxtreme_poll",
    "vma_stats",
    "multi_ring_latency",
}
OTHER |= {"wombat_fh", "pyvma_config_set", "mlx5_ib", "mlx4_ib", "wrap_socket", "busy_poll"}


@pytest.mark.parametrize(
    "name", ["tuning.md", "moving-from-onload.md", "moving-from-vma.md", "reference/vma-others.txt", "troubleshooting.md"]
)
def test_settings(name: str) -> None:
    """In backquotes with an underscore, alone or with a value: a setting, an interface's key or a statistic, but for names of other
    stacks."""
    words = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)(?: ?= ?[^`]*)?`", (DOCS / name).read_text()))
    words = {word for word in words - OTHER if not word.startswith("onload_")}
    keys = {key for row in _config.rows() if row.name == "interfaces" for key in re.findall(r"\w+", row.help)}
    counters = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "reference" / "statistics.md").read_text(), re.MULTILINE))
    assert words <= set(pyvma.settings()) | keys | counters, name


def test_reasons() -> None:
    """The reasons in the table of docs/sockets.md are texts of the engine's or of pyvma.socket's."""
    sources = [*(ROOT / "native" / "sock").glob("*.c"), ROOT / "pyvma" / "socket.py", ROOT / "pyvma" / "_native" / "__init__.py"]
    text = "\n".join(path.read_text() for path in sources)
    table = (DOCS / "sockets.md").read_text().partition("| reason |")[2].partition("\n\n")[0]
    reasons = re.findall(r"^\| `(.*?)` \|", table, re.MULTILINE)
    assert len(reasons) > 10
    for reason in reasons:
        constant = re.sub(r"ADDRESS|NAME|\.\.\.", "%s", reason).replace("address %s is the kernel's", " is the kernel's")
        assert f'"{constant}"' in text, reason


def test_commands() -> None:
    """`pyvma NAME` is a command."""
    for path, text in PROSE.items():
        for name in re.findall(r"`pyvma ([a-z]+)", text):
            assert name in _cli.COMMANDS, f"{path.name}: pyvma {name}"


def test_what_stands_for_any_text() -> None:
    """Lines of dots are any lines, none included, beside others; alone they are one at least, so that silence is noticed."""
    assert guide.prints("...\n", "one\ntwo\n")
    assert not guide.prints("...\n", "")
    assert not guide.prints("...\n", " \n")
    assert guide.prints("one\n...\n", "one\n")
    assert guide.prints("a ... c\n", "a  b c\n")
    assert not guide.prints("one\n...\nRx: ...\n", "one\ntwo\n")
