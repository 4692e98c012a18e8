"""Writes pyvma/_native/_ffi.c from pyvma/_native/_ffi_cdef.txt, or with --check compares it with what is there.

The text that cffi emits differs between its versions: it is made with the version in tools/requirements.txt and with no other.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import tempfile
from pathlib import Path

import cffi

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "pyvma" / "_native" / "_ffi.c"


def wanted_version() -> str:
    match = re.search(r"^cffi==(\S+)", (ROOT / "tools" / "requirements.txt").read_text(), re.MULTILINE)
    if match is None:
        raise SystemExit("tools/requirements.txt names no version of cffi")
    return match.group(1)


def generate() -> str:
    spec = importlib.util.spec_from_file_location("build_ffi", TARGET.with_name("build_ffi.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "_ffi.c"
        module.emit(made)
        return made.read_text()


def main() -> int:
    parser = argparse.ArgumentParser(description="generate pyvma/_native/_ffi.c")
    parser.add_argument("--check", action="store_true", help="compare instead of writing; 1 when they differ")
    arguments = parser.parse_args()
    if cffi.__version__ != wanted_version():
        print(f"gen_ffi: cffi {cffi.__version__} is installed, the file is made with {wanted_version()}")
        return 1
    text = generate()
    if not arguments.check:
        TARGET.write_text(text)
        return 0
    if not TARGET.exists() or TARGET.read_text() != text:
        print(f"{TARGET.relative_to(ROOT)} is not what its definition gives: run python tools/gen_ffi.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
