"""`python -m pyvma [OPTION...] SCRIPT | -m MODULE | -c CODE | - [ARGUMENT...]`: a program as it is, with the engine's sockets.

The standard library is patched first; then the program runs as `python` alone would run it: the same `sys.argv`, `sys.path[0]`,
`__main__`, exit status and tracebacks.
"""

from __future__ import annotations

import argparse
import atexit
import builtins
import importlib.machinery
import io
import os
import pkgutil
import runpy
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from . import _config, _patch

_OURS = (__file__, os.path.join(os.path.dirname(__file__), "__main__.py"), runpy.__file__, "<frozen runpy>")

EXAMPLES = """examples:
  python -m pyvma service.py --port 8000
  python -m pyvma -v --interfaces xdp:device=eth0 -m http.server
  python -m pyvma --stats -c "import socket; print(socket.socket())"

exit status: the program's; 2 for options and settings that are wrong, and for a program that is not there
"""


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m pyvma",
        usage="%(prog)s [OPTION...] SCRIPT | -m MODULE | -c CODE | - [ARGUMENT...]",
        description="Runs a program with its sockets offloaded: sets pyvma's in the standard library's modules first.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = top.add_mutually_exclusive_group()
    what.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    what.add_argument("-c", dest="code", action="store_true", help="the program is the next argument")
    top.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    top.add_argument("-v", "--verbose", action="store_true", help="say on stderr what is replaced")
    top.add_argument("--stats", action="store_true", help="print the engine's counters to stderr at the end")
    top.add_argument("--only", metavar="NAME,...", help=f"patch these only, of {', '.join(_patch.MODULES)}")
    top.add_argument("--config", metavar="FILE", help="a TOML file of settings")
    settings = top.add_argument_group("settings", "those of `pyvma config`; later than their PYVMA_* variables")
    for row in _config.rows():
        name = row.name.replace("_", "-")
        settings.add_argument(f"--{name}", dest=f"set_{row.name}", metavar=row.type.upper(), help=row.help.replace("%", "%%"))
    return top


def _print_counters() -> None:
    from . import counters

    found = {name: value for name, value in counters().items() if value}
    for name, value in found.items():
        print(f"pyvma: {name} {value}", file=sys.stderr)
    if not found:
        print("pyvma: the engine has done nothing", file=sys.stderr)


def _prepare(given: argparse.Namespace, top: argparse.ArgumentParser) -> None:
    """Settings, then the patches."""
    from . import configure

    only = _patch.MODULES if given.only is None else tuple(given.only.split(","))
    for name in only:
        if name not in _patch.MODULES:
            top.error(f"--only: {name!r} is none of {', '.join(_patch.MODULES)}")
    settings = {name[4:]: value for name, value in vars(given).items() if name.startswith("set_") and value is not None}
    try:
        configure(given.config, **settings)
    except (OSError, ValueError) as error:
        top.error(str(error))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", _patch.PatchWarning)  # what this module itself imported
        patched = _patch.patch(**{name: name in only for name in _patch.MODULES})
    if given.verbose:
        for change in patched.replaced:
            print(f"pyvma: replaced {change}", file=sys.stderr)
        for name in patched.held:
            print(f"pyvma: {name} is the standard library's still", file=sys.stderr)
    if given.stats:
        atexit.register(_print_counters)


# ---- as the interpreter does it ----


def _main_module() -> dict[str, Any]:
    """A new `__main__`; its names."""
    module = types.ModuleType("__main__")
    module.__dict__.update(__builtins__=builtins, __annotations__={}, __loader__=importlib.machinery.BuiltinImporter)
    sys.modules["__main__"] = module
    return module.__dict__


def _search_first(folder: str) -> None:
    """Puts the folder where `python -m pyvma` put the current one, unless it was told to put none."""
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path[0] = folder


def _run_source(source: Any, name: str, space: dict[str, Any]) -> None:
    exec(compile(source, name, "exec", dont_inherit=True), space)


def _run_script(path: str) -> None:
    space = _main_module()
    full = os.path.join(os.getcwd(), path)
    if pkgutil.get_importer(path) is not None:  # a folder or an archive, with a __main__.py in it
        if not getattr(sys.flags, "safe_path", sys.flags.isolated):
            del sys.path[0]
        sys.path.insert(0, full)
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    source: Any
    try:
        with io.open_code(full) as file:
            source = file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {full!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    _search_first(os.path.dirname(os.path.realpath(path)))
    loader: Any = importlib.machinery.SourceFileLoader("__main__", full)
    if path.endswith(".pyc"):
        loader = importlib.machinery.SourcelessFileLoader("__main__", full)
        source = loader.get_code("__main__")
    space.update(__file__=full, __cached__=None, __loader__=loader)
    if isinstance(source, types.CodeType):
        exec(source, space)
    else:
        _run_source(source, full, space)


def _run_module(name: str) -> None:
    _main_module()
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def _run_code(code: str) -> None:
    _search_first("")
    _run_source(code, "<string>", _main_module())


def _run_stdin() -> None:
    _search_first("")
    space = _main_module()
    space.update(__file__="<stdin>", __cached__=None)
    _run_source(sys.stdin.buffer.read(), "<stdin>", space)


def _begun(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback from where the program itself begins."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename in _OURS:
        traceback = traceback.tb_next
    return traceback


def _as_main(run: Callable[..., None], *args: str) -> None:
    """Runs the program. What it raises is the interpreter's to print, by the program's own hook, but without the frames up here."""
    try:
        run(*args)
    except SystemExit:
        raise
    except BaseException:
        hook = sys.excepthook

        def from_the_program(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
            begun = _begun(traceback)
            hook(kind, error.with_traceback(begun), begun)

        sys.excepthook = from_the_program
        raise


def run(argv: Sequence[str]) -> None:
    """Runs the program that the command line names. SystemExit is how most end; what the program raises comes through."""
    top = _parser()
    given = top.parse_args(argv)
    if not given.program:
        top.error("which program? a SCRIPT, -m MODULE, -c CODE or - for stdin")
    _prepare(given, top)
    program, *rest = given.program
    sys.argv[:] = ["-m" if given.module else "-c" if given.code else program, *rest]
    if given.module:
        _as_main(_run_module, program)
    elif given.code:
        _as_main(_run_code, program)
    elif program == "-":
        _as_main(_run_stdin)
    else:
        _as_main(_run_script, program)
