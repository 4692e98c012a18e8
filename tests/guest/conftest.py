"""Tests of what only a virtual machine of ours may do to its kernel: `tools/guest.py` runs them, by tests/interop/test_guest.py."""

from __future__ import annotations

from pathlib import Path

collect_ignore_glob = [] if Path("/.guest").exists() else ["test_*.py"]
