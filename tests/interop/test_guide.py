"""The guide does what it says: every example of docs/ is run, and the site is built without a warning."""

from __future__ import annotations

from pathlib import Path

import guide
import netns
import pytest
from lab import softnic_reason

pytestmark = pytest.mark.skipif(bool(softnic_reason()) or not netns.usable(), reason="needs the software NIC, root and namespaces")

# What cannot be run here, by page. Everything else is.
NOT_RUN = {"docs/install.md": 3, "docs/quickstart.md": 1, "docs/tools.md": 1}


@pytest.mark.parametrize("page", guide.pages(), ids=lambda page: str(page.relative_to(guide.DOCS)))
def test_page(page: Path, tmp_path: Path, clean_env: dict[str, str]) -> None:
    guide.execute(page, tmp_path, clean_env)


def test_what_is_not_run() -> None:
    """Few blocks, each with a reason."""
    counts: dict[str, int] = {}
    for page in guide.pages():
        for block in guide.blocks(page):
            if block.comment.startswith("not run"):
                assert len(block.reason) > 10, block.where
                counts[block.page] = counts.get(block.page, 0) + 1
    assert counts == NOT_RUN
