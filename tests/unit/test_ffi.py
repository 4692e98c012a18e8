"""What cffi is told of the public header is what the header says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


# For the preload library: what the C library's callers want to know of signals, threads and the process's end.
PRELOAD = {
    "pyvma_epoll_entries", "pyvma_epoll_leave", "pyvma_epoll_number", "pyvma_epoll_retreat", "pyvma_forks", "pyvma_hand_back_fd",
    "pyvma_hand_back_inheritable", "pyvma_has_own", "pyvma_leave", "pyvma_listener_shared", "pyvma_own_fd", "pyvma_retreat",
    "pyvma_thread", "pyvma_thread_ask", "pyvma_thread_asked", "pyvma_thread_cancel", "pyvma_thread_get", "pyvma_wait_exact",
    "pyvma_wait_mask", "pyvma_wait_restarts",
}  # fmt: skip


def functions(text: str) -> dict[str, str]:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"\s+", " ", text.replace("PYVMA_EXPORT ", ""))
    found = re.findall(r"(?:int|int64_t|void|const char \*) ?\*?pyvma_\w+\([^)]*\);", text)
    return {re.search(r"pyvma_\w+(?=\()", item)[0]: item for item in found}  # type: ignore[index]


def structs(text: str) -> dict[str, str]:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).replace("...;", "")
    found = re.findall(r"struct (pyvma_\w+) \{(.*?)\};", text, re.DOTALL)
    return {name: re.sub(r"\s+", " ", body).strip() for name, body in found}


def test_definition_and_header_agree() -> None:
    header = (ROOT / "native" / "include" / "pyvma.h").read_text()
    definition = (ROOT / "pyvma" / "_native" / "_ffi_cdef.txt").read_text()
    assert len(functions(header)) > 35
    for parts in (functions, structs):
        known, told = parts(header), parts(definition)
        assert len(told) >= 5
        assert told == {name: text for name, text in known.items() if name in told}
        assert known.keys() - told.keys() <= PRELOAD
