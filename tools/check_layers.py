"""Architecture as a test.

    check_layers.py includes            who includes whom, against native/doc/architecture.md's table
    check_layers.py symbols BUILD_DIR   what the core's objects want from outside (`nm -u`), against an allow-list

The core (base, wire, pkt, net, udp, tcp, stack) may not read clocks, start threads, make system calls, print, touch errno or allocate.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native"

CORE = ("base", "wire", "pkt", "net", "udp", "tcp", "stack")

# Layer -> layers it may include beside itself.
ALLOWED: dict[str, set[str]] = {
    "include": set(),
    "base": set(),
    "wire": {"base"},
    "pkt": {"base"},
    "ring": {"pkt", "base"},
    "net": {"pkt", "wire", "base", "ring"},
    "udp": {"net", "pkt", "wire", "base", "ring"},
    "tcp": {"net", "pkt", "wire", "base", "ring"},
    "stack": {"tcp", "udp", "net", "pkt", "wire", "base", "ring"},
    "rt": {"stack", "tcp", "udp", "net", "pkt", "wire", "base", "ring", "include"},
    "sock": {"rt", "stack", "tcp", "udp", "net", "pkt", "wire", "base", "ring", "include"},
    "softnic": {"base"},
    # The raw AF_XDP row is the ring of the engine without the engine: a second driver of AF_XDP would measure something else.
    "bench": {"include", "base", "pkt", "ring"},
    # A face: the engine by its installed header, and macros of base.
    "preload": {"include", "base"},
}
# The core knows rings by their contract only.
CONTRACT_ONLY = {
    "net": {"ring/ring.h"},
    "udp": {"ring/ring.h"},
    "tcp": {"ring/ring.h"},
    "stack": {"ring/ring.h"},
    "sock": {"ring/ring.h", "ring/enqueue.h"},
}

# System headers that carry no behaviour, for the core.
CORE_HEADERS = {"stdbool.h", "stddef.h", "stdint.h", "string.h", "limits.h", "inttypes.h", "errno.h", "stdalign.h", "emmintrin.h"}
CORE_HEADERS |= {"immintrin.h"}

# What a compiler may call by itself, and the core's own names.
SYMBOLS_OK = re.compile(
    r"^(pv_\w+|mem(cpy|set|move|cmp|chr)|strcmp|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail|__(asan|ubsan|tsan|sanitizer)\w*)$"
)

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^">]+)[">]', re.MULTILINE)


def includes() -> list[str]:
    problems = []
    for path in sorted(NATIVE.rglob("*.[ch]")):
        layer = path.relative_to(NATIVE).parts[0]
        if layer == "doc":
            continue
        allowed = ALLOWED.get(layer)
        if allowed is None:
            problems.append(f"{path.relative_to(ROOT)}: no layer is called {layer!r}")
            continue
        for kind, target in INCLUDE.findall(path.read_text()):
            where = f"{path.relative_to(ROOT)}: includes {target}"
            if kind == "<":
                if layer in CORE and target not in CORE_HEADERS:
                    problems.append(f"{where}: the core may not")
                continue
            if target == "pyvma.h":
                other = "include"
            elif (NATIVE / target).is_file():
                other = target.split("/")[0]
            elif (path.parent / target).is_file():
                problems.append(f"{where}: name it from native/, as all do")
                continue
            else:
                problems.append(f"{where}: no such file below native/")
                continue
            if other != layer and other not in allowed:
                problems.append(f"{where}: {layer} may not look into {other}")
            elif other == "ring" and layer in CONTRACT_ONLY and target not in CONTRACT_ONLY[layer]:
                problems.append(f"{where}: {layer} knows rings by ring/ring.h only")
    return problems


def symbols(build: Path) -> list[str]:
    objects = sorted((build / "CMakeFiles" / "pv_core.dir").rglob("*.o"))
    if not objects:
        return [f"{build}: no objects of the core there"]
    listing = subprocess.run(["nm", "-u", "-A", *map(str, objects)], capture_output=True, text=True, check=True).stdout
    problems = []
    for line in listing.splitlines():
        name = line.split()[-1].split("@")[0]
        if not SYMBOLS_OK.match(name):
            problems.append(f"{Path(line.split(':')[0]).name}: wants {name}")
    return problems


def main() -> int:
    if sys.argv[1:] == ["includes"]:
        problems = includes()
    elif len(sys.argv) == 3 and sys.argv[1] == "symbols":
        problems = symbols(Path(sys.argv[2]))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
