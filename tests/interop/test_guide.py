"""The guide does what it says: every example of docs/ is run, and the site is built without a warning."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

import debian
import guide
import netns
import pytest
from lab import LONG, softnic_reason

pytestmark = pytest.mark.skipif(bool(softnic_reason()) or not netns.usable(), reason="needs the software NIC, root and namespaces")

# What cannot be run here, by page. Everything else is.
NOT_RUN = {
    "docs/daemon.md": 1,
    "docs/install.md": 3,
    "docs/quickstart.md": 2,
    "docs/tools.md": 1,
    "docs/tracing.md": 1,
    "docs/watching.md": 1,
}


NEWCOMER = guide.DOCS / "first-service.md"


@pytest.mark.parametrize("page", [page for page in guide.pages() if page != NEWCOMER], ids=lambda page: str(page.relative_to(guide.DOCS)))
def test_page(page: Path, tmp_path: Path, clean_env: dict[str, str]) -> None:
    guide.execute(page, tmp_path, clean_env)


@pytest.mark.timeout(3000)
def test_newcomer(tmp_path: Path, clean_env: dict[str, str]) -> None:
    """The first page alone leads to a service with its statistics on the screen: with the package that is installed. From a bare Debian 12
    and a clone of this repository, as the page has it, is the long form: PYVMA_TEST_LONG=1."""
    if not LONG:
        guide.execute(NEWCOMER, tmp_path, clean_env)
        return
    with debian.bare(tmp_path) as system, ExitStack() as stack:
        home = system.root / "root"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(guide.ROOT), str(home / "pyvma")], check=True)
        guide.follow(NEWCOMER, guide.Scratch(home, system.env, stack, outer=system.prefix, home="/root", limit_s=1500))


def test_what_is_not_run() -> None:
    """Few blocks, each with a reason."""
    counts: dict[str, int] = {}
    for page in guide.pages():
        for block in guide.blocks(page):
            if block.comment.startswith("not run"):
                assert len(block.reason) > 10, block.where
                counts[block.page] = counts.get(block.page, 0) + 1
    assert counts == NOT_RUN
