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


def main() -> int:
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
    build = ROOT / "build" / "asan"
    environment = {
        **os.environ,
        "LD_PRELOAD": os.path.realpath(runtime),
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
