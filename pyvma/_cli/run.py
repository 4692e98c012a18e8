"""Runs any dynamically linked program with its sockets offloaded: the preload library under it, settings in its environment.

The program replaces this process: signals, terminal and exit status are its own. What cannot be offloaded is the kernel's, and where
nothing can be (a static or setuid program, no privilege) it runs as if pyvma were not there, with a line that says why.

For a Python program `python -m pyvma` does without the library and knows more of it, asyncio's loop above all; `pyvma run` is for
programs in every other language, for Python with extension modules that have sockets of their own, and for whole trees of processes.
`import pyvma` in a program under `pyvma run` uses the engine that is there.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import _run_elf
from ._run_elf import CannotRunError, NotFoundError, Target

LIBRARY = "libpyvma_preload.so"
FAILED, CANNOT_RUN, NOT_FOUND = 125, 126, 127
PYTHONS = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them, and a program would begin so
ROLES = ("tcp_server", "tcp_client", "udp_receiver", "udp_sender", "udp_connect")

EPILOG = """examples:
  pyvma run --interfaces xdp:device=eth0 -- redis-server --port 6379
  pyvma run --ring xdp --device eth0 --preset latency -- sockperf server -i 10.0.0.1
  pyvma run --rules /etc/libvma.conf --stats -- nginx -g 'daemon off;'
  pyvma run --dry-run --rules my.conf --socket 'tcp_client 10.0.0.9:5432' -- psql
  PYVMA_INTERFACES=xdp:device=eth0 pyvma run -- curl http://10.0.0.9/

exit status: 0 after --dry-run; else the program's own, as a shell shows it; 125 pyvma run itself failed (a setting that is wrong, what
--strict does not let pass), 126 the program is there and cannot be started, 127 there is no such program, 2 wrong options
"""


@dataclass
class Plan:
    """How the program is going to be started."""

    target: Target
    env: dict[str, str]
    interfaces: list[tuple[str, str]] = field(default_factory=list)  # ring, what it is on
    rules: list[str] = field(default_factory=list)  # those for the program, as pyvma_rules_list has them
    rules_file: str = ""
    reason: str = ""  # why it runs on the kernel alone


class RefusedError(Exception):
    """Exit status 125."""


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "run",
        help="any program with its sockets offloaded",
        description=__doc__,
        epilog=EPILOG,
        usage="pyvma run [OPTION...] [--] PROGRAM [ARGUMENT...]",
    )
    which = parser.add_argument_group("what is offloaded")
    which.add_argument("--interfaces", metavar="SPEC", help="as the setting interfaces: xdp:device=eth0, several separated by ';'")
    which.add_argument("--ring", choices=["xdp", "verbs", "softnic", "tap"], default="xdp", help="with --device: its kind (default xdp)")
    which.add_argument("--device", metavar="NAME", help="short for --interfaces RING:device=NAME")
    which.add_argument("--rules", metavar="FILE", help="which sockets are left to the kernel: a file in the grammar of VMA's libvma.conf")
    which.add_argument("--app-id", metavar="ID", help="for the lines application-id of that file")
    parser.add_argument("--preset", metavar="NAME", help="settings for a purpose: latency, throughput, shared, ... (`pyvma config preset`)")
    parser.add_argument("--config", metavar="FILE", help="a TOML file of settings")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="any setting of `pyvma config`; repeatable")
    parser.add_argument("--strict", action="store_true", help="an error, where a program or a socket would else be left to the kernel")
    parser.add_argument("--stats", action="store_true", help="stay beside the program, and print what was offloaded when it has ended")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done, and by which rules")
    parser.add_argument(
        "--socket",
        metavar="ROLE ADDRESS:PORT",
        action="append",
        default=[],
        help="with --dry-run: make this socket and say what becomes of it; ROLE as in rules. Repeatable",
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")
    parser.add_argument("program", metavar="PROGRAM", nargs=argparse.REMAINDER, help="the program and its arguments")


def library() -> Path:
    """Where the preload library is, if it is."""
    from .. import _native

    return Path(_native.__file__).parent / LIBRARY


def say(text: str) -> None:
    """On stderr."""
    print(f"pyvma run: {text}", file=sys.stderr, flush=True)


# ---- what is asked for ----


def settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Settings of the command line, by name."""
    found: dict[str, str] = {}
    for text in arguments.set:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise RefusedError(f"--set {text}: NAME=VALUE is wanted")
        found[name.replace("-", "_")] = value
    if arguments.device is not None:
        found["interfaces"] = f"{arguments.ring}:device={arguments.device}"
    given = {"interfaces": arguments.interfaces, "preset": arguments.preset, "app_id": arguments.app_id}
    found |= {name: value for name, value in given.items() if value is not None}
    if arguments.rules is not None:
        found["rules_file"] = os.path.abspath(arguments.rules)
    if arguments.strict:
        found["strict"] = "1"
    return found


def checked(arguments: argparse.Namespace, found: dict[str, str]) -> None:
    """Settings of the environment and the command line, by the engine itself."""
    from .. import configure

    if arguments.config is not None:
        os.environ["PYVMA_CONFIG"] = os.path.abspath(arguments.config)
    try:
        configure(None, **found)
        if not found:
            configure(None, strict=_value("strict"))  # reads the environment
    except (OSError, ValueError) as error:
        raise RefusedError(str(error)) from None


def _value(name: str) -> str:
    from .. import _config

    return _config.value_of(name)


def interfaces(spec: str) -> list[tuple[str, str]]:
    """(ring, what it is on) of each entry. RefusedError: what is wrong with it."""
    from .._native import ffi, lib

    if lib.pyvma_interfaces_check(spec.encode()):
        raise RefusedError(ffi.string(lib.pyvma_last_error()).decode(errors="replace"))
    found = []
    for entry in filter(None, (part.strip() for part in spec.split(";"))):
        ring, _, rest = entry.partition(":")
        keys = [part.partition("=") for part in rest.split(",")]
        words = [
            value if equals else name
            for name, equals, value in keys
            if not equals or name in ("device", "netdev", "fabric", "name", "addr")
        ]
        found.append((ring, " ".join(dict.fromkeys(words)) or rest))
    return found


def rules_of(file: str, program: str, identity: str) -> list[str]:
    """Lines of pyvma_rules_list. RefusedError: what is wrong with the file."""
    from .._native import ffi, lib

    room = ffi.new("char[]", 1)
    size = lib.pyvma_rules_list(os.fsencode(file), os.fsencode(program), identity.encode(), room, 1)
    if size < 0:
        raise RefusedError(ffi.string(lib.pyvma_last_error()).decode(errors="replace"))
    room = ffi.new("char[]", size + 1)
    lib.pyvma_rules_list(os.fsencode(file), os.fsencode(program), identity.encode(), room, size + 1)
    text: str = ffi.string(room).decode(errors="replace")
    return text.splitlines()


# ---- whether it can be ----


def ring_reason(ring: str) -> str:
    """Why rings of this kind cannot be opened here, as `pyvma doctor` finds it."""
    from . import doctor

    checks = {"xdp": doctor._xdp, "verbs": doctor._verbs, "softnic": doctor._softnic, "tap": doctor._uplink}
    if ring not in checks:
        return ""
    bad = [finding for finding in checks[ring]() if finding.state != doctor.OK]
    return f"{bad[0].subject}: {bad[0].text}" if bad else ""


def kernel_reason(plan: Plan) -> str:
    """Why the program is the kernel's altogether."""
    place = str(library())
    if plan.target.reason:
        return plan.target.reason
    if not os.path.exists(place):
        return f"{place} is not there: it comes with the package"
    if any(letter in place for letter in " :"):
        return f"{place}: the dynamic linker takes no path with a blank or a colon"
    if not plan.interfaces:
        return "no interface is configured (--interfaces, or PYVMA_INTERFACES)"
    if _value("offload") != "1":
        return "the setting offload is off"
    reasons = [ring_reason(ring) for ring, _ in plan.interfaces]
    return reasons[0] if all(reasons) else ""


def make_plan(arguments: argparse.Namespace) -> Plan:
    """Everything that there is to know before the program is started."""
    words = program_of(arguments)
    target = _run_elf.examine(_run_elf.find(words[0]))
    found = settings(arguments)
    checked(arguments, found)
    plan = Plan(target, dict(os.environ) | {f"PYVMA_{name.upper()}": value for name, value in found.items()})
    plan.interfaces = interfaces(_value("interfaces"))
    plan.rules_file = _value("rules_file")
    if plan.rules_file:
        plan.rules = rules_of(plan.rules_file, os.path.basename(target.image), _value("app_id"))
    plan.reason = kernel_reason(plan)
    if not plan.reason:
        before = plan.env.get("LD_PRELOAD", "")
        place = str(library())
        plan.env["LD_PRELOAD"] = before if place in before.replace(" ", ":").split(":") else ":".join(filter(None, (place, before)))
    return plan


def program_of(arguments: argparse.Namespace) -> list[str]:
    """The command line behind the options."""
    words: Sequence[str] = arguments.program
    return list(words[1:] if words[:1] == ["--"] else words)


# ---- what is said ----


def summary(plan: Plan) -> str:
    """One line."""
    name = os.path.basename(plan.target.path)
    if plan.reason:
        return f"{name} runs on the kernel's sockets: {plan.reason}"
    places = ", ".join(f"{place} ({ring})" for ring, place in plan.interfaces)
    text = f"{name}: TCP and UDP sockets on {places} are offloaded, others are the kernel's"
    if plan.rules_file:
        text += f"; {len(plan.rules)} rule{'s' if len(plan.rules) != 1 else ''} of {plan.rules_file}"
    return text


def dry_run(plan: Plan, arguments: argparse.Namespace) -> int:
    """What would become of which socket."""
    print(summary(plan))
    if plan.target.image != plan.target.path:
        print(f"  its interpreter is {plan.target.image}")
    if not plan.reason:
        print(f"  LD_PRELOAD={plan.env['LD_PRELOAD']}")
    for name in sorted(name for name in plan.env if name.startswith("PYVMA_")):
        print(f"  {name}={plan.env[name]}")
    for ring, place in plan.interfaces:
        reason = ring_reason(ring)
        print(f"  ring {ring} on {place}{': ' + reason if reason else ''}")
    if plan.rules_file:
        for role in ROLES:
            rows = [row.split("\t", 4) for row in plan.rules]
            for number, line, _, what, text in (row for row in rows if row[2] == role):
                verdict = "the kernel's" if what == "kernel" else "offloaded"
                print(f"  {role:<12} {verdict:<12} rule {number} of {plan.rules_file}, line {line}: {text}")
            print(f"  {role:<12} {'offloaded':<12} {'others' if any(row[2] == role for row in rows) else 'no rule'}")
    from . import _run_sockets

    status = 0
    for text in arguments.socket:
        print(f"  {text}: {_run_sockets.outcome(plan, text)}")
    return status


def start(plan: Plan, arguments: argparse.Namespace) -> int:
    """In place of this process, or beside it."""
    words = program_of(arguments)
    if arguments.stats:
        from . import _run_stats

        return _run_stats.beside(plan, words)
    sys.stdout.flush()
    sys.stderr.flush()
    for number in PYTHONS:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(plan.target.path, words, plan.env)
    except OSError as error:
        raise CannotRunError(f"{words[0]}: {error.strerror}") from None


def run(arguments: argparse.Namespace) -> int:
    """Runs the program; returns only when that fails, with --stats, or after --dry-run."""
    if not program_of(arguments):
        say("which program? pyvma run [OPTION...] [--] PROGRAM [ARGUMENT...]")
        return FAILED
    try:
        plan = make_plan(arguments)
        if arguments.dry_run:
            return dry_run(plan, arguments)
        if arguments.strict and plan.reason:
            raise RefusedError(f"--strict: {plan.reason}")
        if not arguments.quiet:
            say(summary(plan))
        return start(plan, arguments)
    except NotFoundError as error:
        say(str(error))
        return NOT_FOUND
    except CannotRunError as error:
        say(str(error))
        return CANNOT_RUN
    except RefusedError as error:
        say(str(error))
        return FAILED
