"""File and function sizes, and names: at most 800 lines a file, 70 a function, 6 parameters.

Prints the ten largest of each and fails on what is over. A function is found by the braces of clang-format's layout: an opening brace
in column 1 ends its signature, a closing one in column 1 ends it. Python functions are measured by `ast`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES, FUNCTION_LINES, PARAMETERS = 800, 70, 6
GENERATED = {"pyvma/_native/_ffi.c"}
# Calls whose parameters are another interface's: a libibverbs, libc or public socket call keeps the signature it stands in for.
FOREIGN = re.compile(r"^(ibv_|_ibv_|pyvma_|__\w+_chk$)")
NAME = re.compile(r"(\w+)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)[^()]*$", re.DOTALL)


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, check=True).stdout
    return [n for n in listed.decode().split("\0") if n and n not in GENERATED and (ROOT / n).is_file()]


def c_functions(text: str) -> list[tuple[str, int, int, int]]:
    """(name, first line, lines, parameters) of each function definition."""
    found = []
    lines = text.splitlines()
    start = None
    for number, line in enumerate(lines):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            head = start
            while (
                head > 0 and lines[head - 1] and not lines[head - 1].startswith(("}", "#", "/*", " */")) and lines[head - 1][-1] not in ";"
            ):
                head -= 1
            match = NAME.search(" ".join(lines[head:start]))
            if match:
                arguments = re.sub(r"\([^()]*\)", "", match.group(2)).strip()
                count = 0 if arguments in ("", "void") else arguments.count(",") + 1
                found.append((match.group(1), start + 1, number - start + 1, count))
            start = None
    return found


def python_functions(text: str) -> list[tuple[str, int, int, int]]:
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            names = [a.arg for a in [*arguments.posonlyargs, *arguments.args] if a.arg not in ("self", "cls")]
            found.append((node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1, len(names)))
    return found


def main() -> int:
    files, functions, problems = [], [], []
    for name in tracked("native/*.c", "native/*.h", "tests/*.c", "tests/*.h", "pyvma/*.py", "tests/*.py", "tools/*.py"):
        text = (ROOT / name).read_text()
        count = text.count("\n")
        files.append((count, name))
        if count > FILE_LINES:
            problems.append(f"{name}: {count} lines, {FILE_LINES} at most")
        measured = python_functions(text) if name.endswith(".py") else c_functions(text)
        for function, line, length, parameters in measured:
            functions.append((length, f"{name}:{line} {function}"))
            if length > FUNCTION_LINES:
                problems.append(f"{name}:{line}: {function} has {length} lines, {FUNCTION_LINES} at most")
            if parameters > PARAMETERS and not FOREIGN.match(function) and not name.startswith(("tests/", "pyvma/")):
                problems.append(f"{name}:{line}: {function} takes {parameters} parameters, {PARAMETERS} at most")
    print(f"{len(files)} files, {sum(c for c, _ in files)} lines, {len(functions)} functions")
    for title, rows in (("largest files", files), ("longest functions", functions)):
        print(title)
        for count, where in sorted(rows, reverse=True)[:10]:
            print(f"  {count:>5}  {where}")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
