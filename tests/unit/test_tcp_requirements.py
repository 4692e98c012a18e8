"""The table of RFC 9293's requirements in native/doc/tcp.md: every requirement is in it, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "tests" / "native"
SHORT = {"rfc": "tcp_rfc9293_test", "wire": "wire_tcp_test"}
SHORT.update({n: f"tcp_{n}_test" for n in "state random attack goodput conn icmp listen out out_timer rcv recovery rto sack cc".split()})
# What the table says instead of a test.
WITHOUT_TEST = {"MUST-51..53, SHLD-24", "SHLD-9", "SHLD-13", "SHLD-20", "SHLD-23"}


def rows() -> list[tuple[str, str]]:
    """(requirements, tests) of each row."""
    section = (ROOT / "native/doc/tcp.md").read_text().split("## RFC 9293, Appendix B")[1].split("\n## ")[0]
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if re.match(r"\| (MUST|SHLD|MAY)", line)
    ]
    return [(cells[0], cells[2]) for cells in found]


def numbers(text: str) -> set[tuple[str, int]]:
    """`MUST-4..7, SHLD-2` as pairs."""
    found = set()
    for word, first, last in re.findall(r"(MUST|SHLD)-(\d+)(?:\.\.(\d+))?", text):
        found |= {(word, number) for number in range(int(first), int(last or first) + 1)}
    return found


def cases(program: str) -> set[str]:
    return set(re.findall(r"^TEST\((\w+)\)", (NATIVE / f"{program}.c").read_text(), re.MULTILINE))


def test_every_requirement_is_there_once_at_least() -> None:
    listed = set().union(*(numbers(text) for text, _ in rows()))
    assert listed == {("MUST", n) for n in range(1, 70)} | {("SHLD", n) for n in range(1, 32)}


@pytest.mark.parametrize(("requirements", "tests"), rows(), ids=[text for text, _ in rows()])
def test_named_tests_exist(requirements: str, tests: str) -> None:
    plain = re.sub(r"\([^)]*\)", "", tests)
    programs = 0
    for part in plain.split(";"):
        names = re.findall(r"`(\w+)`", part)
        words = [
            word for word in re.findall(r"[\w]+", part.split("`")[0]) if word in SHORT or word.endswith("_test") or word.startswith("fuzz_")
        ]
        for word in words:
            if word.startswith("fuzz_"):
                assert (ROOT / "tests/fuzz" / f"{word}.c").exists()
            else:
                assert (NATIVE / f"{SHORT.get(word, word)}.c").exists()
            programs += 1
        for name in names:
            assert words, f"{name} of which program?"
            assert all(name in cases(SHORT.get(word, word)) for word in words), f"{name} is not in {words}"
    assert bool(programs) == (requirements not in WITHOUT_TEST)
