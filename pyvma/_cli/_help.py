"""What every command of `pyvma` says of itself: a description, examples, exit statuses; and how a command ends."""

from __future__ import annotations

import argparse
import math
import os
import sys
import textwrap
from collections.abc import Callable, Iterator

from . import UserError

__all__ = ["DAY_S", "finish", "guarded", "seconds", "walk"]

STATUSES = "exit status: 0 done, 1 it failed (one line on stderr says why), 2 wrong options, 130 ended by Ctrl-C"
DAY_S = 86400.0

# Of commands whose own text has none.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "pyvma doctor                             what works on this machine, and what to do about the rest",
        "pyvma demo                               two processes over the software NIC, beside the kernel",
        "pyvma stats                              what a running process does",
        "pyvma run --ring xdp --device eth0 -- redis-server    any program, with its sockets offloaded",
        "python -m pyvma service.py               a Python program, with its sockets offloaded",
        "eval \"$(pyvma completion bash)\"          complete commands and options by Tab",
    ),
    "doctor": ("pyvma doctor", "PYVMA_INTERFACES=xdp:device=eth0 pyvma doctor --json"),
    "config": ("pyvma config", "pyvma config rx_poll log_level", "PYVMA_CONFIG=service.toml pyvma config --json"),
    "demo": ("pyvma demo", "pyvma demo --seconds 5 --size 1000 --no-xdp"),
    "daemon": ("pyvma daemon run                  as root; or systemctl start pyvmad", "pyvma daemon status --json"),
    "daemon run": ("pyvma daemon run --socket /run/pyvmad/pyvmad.sock --group pyvma", "pyvma daemon run --dry-run"),
    "daemon status": ("pyvma daemon status", "pyvma daemon status --json"),
    "softnic": ("pyvma softnic uplink --fabric demo --port 7 --dev tap0", "pyvma softnic counters --fabric demo --port 0"),
    "softnic uplink": ("pyvma softnic uplink --fabric demo --port 7 --dev tap0      until Ctrl-C",),
    "softnic counters": ("pyvma softnic counters --fabric demo --port 0 --json",),
    "softnic impair": (
        "pyvma softnic impair --fabric demo --port 0 loss=0.01,delay=10us,rate=1Gbit",
        "pyvma softnic impair --fabric demo --port 0                  as it was",
    ),
    "softnic link": ("pyvma softnic link --fabric demo --port 0 down",),
    "roce status": ("pyvma roce status", "pyvma roce status mlx5_0 --json"),
    "roce mode": ("pyvma roce mode mlx5_0 1", "pyvma roce mode mlx5_0 1 v2"),
    "roce tos": ("pyvma roce tos mlx5_0 1", "pyvma roce tos mlx5_0 1 106"),
    "roce ttl": ("pyvma roce ttl mlx5_0 1", "pyvma roce ttl mlx5_0 1 64"),
    "roce enable": ("pyvma roce enable mlx5_0",),
    "roce disable": ("pyvma roce disable 0000:03:00.0",),
    "roce tclass": ("pyvma roce tclass list mlx5_0 1", "pyvma roce tclass add mlx5_0 1 tclass=16,dst_ip=1.1.1.0/24"),
    "roce tclass list": ("pyvma roce tclass list mlx5_0 1",),
    "roce tclass set": ("pyvma roce tclass set mlx5_0 1 106", "pyvma roce tclass set mlx5_0 1 none"),
    "roce tclass add": ("pyvma roce tclass add mlx5_0 1 tclass=16,src_ip=1.1.1.2,dst_ip=1.1.1.0/24",),
    "roce tclass del": ("pyvma roce tclass del mlx5_0 1 src_ip=1.1.1.2,dst_ip=1.1.1.0/24",),
    "roce tclass explain": ("pyvma roce tclass explain mlx5_0 1 --src 1.1.1.2 --dst 1.1.1.9",),
    "roce sl": ("pyvma roce sl 160",),
    "roce ack-timeout": ("pyvma roce ack-timeout 14", "pyvma roce ack-timeout --us 100000"),
    "bench": (
        "pyvma bench server -i 127.0.0.1 -p 11111        in one terminal",
        "pyvma bench ping-pong -i 127.0.0.1 -p 11111     in another",
        "pyvma bench compare --ring softnic --runs 3     raw ring, pyvma and the kernel in one table",
    ),
    "bench server": (
        "pyvma bench server -i 127.0.0.1 -p 11111 --tcp",
        "pyvma bench server --interface softnic:fabric=demo,port=0,addr=10.9.0.1/24 -i 10.9.0.1",
    ),
    "bench ping-pong": (
        "pyvma bench ping-pong -i 127.0.0.1 -t 5 -m 200",
        "pyvma bench ping-pong --interface softnic:fabric=demo,port=1,addr=10.9.0.2/24 -i 10.9.0.1",
    ),
    "bench under-load": ("pyvma bench under-load -i 127.0.0.1 --mps 100000",),
    "bench throughput": ("pyvma bench throughput -i 127.0.0.1 -m 1400 --batch 64",),
    "bench playback": ("pyvma bench playback -i 127.0.0.1 --data-file messages.csv",),
    "bench compare": ("pyvma bench compare --runs 5", "pyvma bench compare --ring xdp --proto tcp --json result.json"),
    "bench sweep": ("pyvma bench sweep --over rate --values 10000,100000 --plot plots", "pyvma bench sweep --proto tcp --csv sizes.csv"),
    "bench sockperf": (
        "pyvma bench sockperf",
        "pyvma bench sockperf --stack all --tcp --runs 3     over the stack, the kernel and the bare ring",
        "pyvma bench sockperf under-load --mps 10000 --json result.json",
    ),
    "bench report": ("pyvma bench report --page performance.md", "pyvma bench report --section udp-softnic --into results --page page.md"),
    "bench connections": ("pyvma bench connections --count 1000 --churn 2000 --runs 1",),
    "bench mixed": ("pyvma bench mixed --ring softnic --seconds 2",),
    "bench gil": ("pyvma bench gil --proto udp --runs 3",),
    "stats trace": ("pyvma stats trace --help",),
}  # fmt: skip


class Help(argparse.HelpFormatter):
    """Paragraphs are filled; those with indented lines, such as examples, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = []
        for part in textwrap.dedent(text).strip("\n").split("\n\n"):
            lines = part.splitlines()
            if any(line.startswith(" ") for line in lines):
                parts.append(part)
            else:
                parts.append(textwrap.fill(" ".join(lines), width, initial_indent=indent, subsequent_indent=indent))
        return "\n\n".join(parts)


def seconds(low: float, high: float = DAY_S) -> Callable[[str], float]:
    """For argparse's `type`: a number from low to high, which nan and inf are not."""

    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from {low:g} to {high:g}")
        return value

    return convert


def walk(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every command and sub-command by its words."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from walk(sub, (*path, name))


def _described(parser: argparse.ArgumentParser) -> None:
    """A sub-command without a description has that of its line in the list."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                sub = action.choices[choice.dest]
                if not sub.description and choice.help:
                    sub.description = f"{choice.help[0].upper()}{choice.help[1:]}."


def finish(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> argparse.ArgumentParser:
    """The parser and all below it with description, examples and exit statuses."""
    for words, sub in walk(parser, path):
        _described(sub)
        sub.formatter_class = Help
        parts = [sub.epilog] if sub.epilog else []
        if "example" not in (sub.epilog or ""):
            lines = EXAMPLES.get(" ".join(words), ())
            parts += ["examples:\n" + "\n".join(f"  {line}".replace("%", "%%") for line in lines)] if lines else []
        if "exit status" not in (sub.epilog or ""):
            parts.append(STATUSES)
        sub.epilog = "\n\n".join(part.strip("\n") for part in parts)
    return parser


def _quiet() -> None:
    """Nothing more is written: what is left in the buffers must not fail while the interpreter ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _line(error: OSError) -> str:
    name = f"{error.filename}: " if isinstance(error.filename, str) else ""
    return f"{name}{error.strerror or error}"


def guarded(name: str, work: Callable[[], int]) -> int:
    """The exit status of `work`; what a user can mend is one line that begins with `name`. SystemExit is the parser's."""
    try:
        try:
            status = work()
        finally:
            sys.stdout.flush()
    except UserError as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # who reads has seen enough
        _quiet()
        return 0
    except SystemExit as over:
        if isinstance(over.__context__, BrokenPipeError):  # as rich ends it
            return 0
        raise
    except OSError as error:
        print(f"{name}: {_line(error)}", file=sys.stderr)
        _quiet()
        return 1
    return status
