"""Builds the guide: docs/ and native/doc as one site in build/docs. Warnings, broken links among them, are errors.

    build_docs.py [--out FOLDER]

The pages stand in the repository as they are read there. Those of native/doc become the chapter `internals` of the site, and links
between the two halves are changed accordingly.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NATIVE = ROOT / "native" / "doc"
OUT = ROOT / "build" / "docs"
# [text](target) and the target's anchor
LINK = re.compile(r"(?<=\]\()([^()#\s:]+)(?=[)#])")


def relinked(text: str, page: Path, staged: Path) -> str:
    """The page with its relative links as they are in the staged tree. ValueError for one that leads nowhere."""

    def change(found: re.Match[str]) -> str:
        target = (page.parent / found[1]).resolve()
        if not target.exists():
            raise ValueError(f"{page.relative_to(ROOT)}: there is no {found[1]}")
        if target.is_relative_to(NATIVE):
            return str(Path("internals") / target.relative_to(NATIVE)) if staged.parent == Path() else f"../internals/{target.name}"
        if target.is_relative_to(DOCS) and page.is_relative_to(NATIVE):
            return f"../{target.relative_to(DOCS)}"
        return found[1]

    return LINK.sub(change, text)


def stage(folder: Path) -> None:
    """Writes the tree that Sphinx reads. ValueError for a link that leads nowhere."""
    shutil.copytree(DOCS, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.md"))
    (folder / "internals").mkdir()
    pages = [(page, page.relative_to(DOCS)) for page in DOCS.rglob("*.md")]
    pages += [(page, Path("internals") / page.name) for page in NATIVE.glob("*.md")]
    for page, staged in pages:
        (folder / staged).write_text(relinked(page.read_text(), page, staged))
    if not (DOCS / "performance.md").exists():  # `make bench` writes it
        index = folder / "index.md"
        index.write_text(index.read_text().replace("\nperformance\n", "\n"))
    for page in ROOT.glob("*.md"):  # not of the site, but their links are to be good, too
        relinked(page.read_text(), page, Path(page.name))


def main() -> int:
    parser = argparse.ArgumentParser(description="build the guide")
    parser.add_argument("--out", type=Path, default=OUT, help="where the site goes (default: build/docs)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            stage(Path(folder))
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
        shutil.rmtree(arguments.out, ignore_errors=True)
        command = [sys.executable, "-m", "sphinx", "-q", "-E", "-n", "-W", "--keep-going", "-b", "html"]
        status = subprocess.run([*command, "-d", f"{folder}/.doctrees", folder, str(arguments.out)]).returncode
    if status == 0:
        print(f"the guide is in {arguments.out / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
