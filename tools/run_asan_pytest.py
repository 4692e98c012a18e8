"""The Python tests once more with the engine and the software NIC under ASAN and UBSAN.

The installed extension module finds libpyvma.so by its run path, which LD_LIBRARY_PATH goes before: so the sanitized libraries of
build/asan take the place of the installed ones. Leaks are not asked of the interpreter; the native tests do that.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def library(name: str) -> str:
    """Where the compiler has it."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
    return os.path.realpath(found) if os.path.exists(found) else name


def main() -> int:
    build = ROOT / "build" / "asan"
    environment = {
        **os.environ,
        # The runtime looks for what throws C++ exceptions when it starts; extension modules (matplotlib's) would bring that later.
        "LD_PRELOAD": f"{library('libasan.so')} {library('libstdc++.so.6')}",
        "LD_LIBRARY_PATH": str(build),
        "PYVMA_SOFTNIC_LIB": str(build / "libpyvma-softnic.so"),
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONSAFEPATH": "1",
        "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, "-m", "pytest", *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
