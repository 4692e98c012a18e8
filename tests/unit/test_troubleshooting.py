"""Each message of `pyvma doctor` that is not "ok" has an entry in the guide, under its very words, and no entry is of no message."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCTOR = ROOT / "pyvma" / "_cli" / "doctor.py"
PAGE = ROOT / "docs" / "troubleshooting.md"


def words(node: ast.expr) -> str:
    """A text of the source, with `...` for what varies."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr), f"line {node.lineno}: write the text where it is reported, so that this test sees it"
    return "".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values)


def messages() -> set[str]:
    found = set()
    for call in ast.walk(ast.parse(DOCTOR.read_text())):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Finding":
            subject, state, text = call.args[:3]
            assert getattr(state, "id", "") in ("OK", "NOTE", "BAD"), f"line {call.lineno}: the state has to be said where it is reported"
            if getattr(state, "id", "") != "OK":
                subject_text = words(subject) if isinstance(subject, ast.Constant | ast.JoinedStr) else "..."
                text_text = words(text) if isinstance(text, ast.Constant | ast.JoinedStr) else "..."
                found.add(f"{subject_text}: {text_text}")
    return found


def test_each_message_has_an_entry() -> None:
    entries = {heading.strip("`") for heading in re.findall(r"^### (.+)$", PAGE.read_text(), re.MULTILINE)}
    found = messages()
    assert len(found) > 20
    assert entries == found
