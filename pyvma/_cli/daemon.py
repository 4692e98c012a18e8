"""The privileged daemon: TAP devices, XDP programs and redirect rules for programs without privileges.

Users of its group (`pyvma`) may ask it for what is theirs: flows of addresses and ports that they hold. Programs find it by the setting
`daemon`. It keeps running in the foreground, as systemd likes it (packaging/pyvmad.service).
"""

from __future__ import annotations

import argparse
from typing import Any

from . import UserError
from ._show import as_json


def _max_flows(text: str) -> int:
    """For argparse's `type`: systemd does not try wrong options again."""
    if not text.isdecimal() or not 1 <= int(text) <= 1 << 20:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 1048576")
    return int(text)


def add_actions(top: argparse.ArgumentParser) -> None:
    """Adds the sub-commands to `pyvma daemon` or `pyvmad`."""
    from ..daemon import SOCKET

    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    run_it = actions.add_parser("run", help="serve until SIGINT or SIGTERM")
    run_it.add_argument("--group", default="pyvma", metavar="NAME", help="whose members may ask (default: pyvma)")
    run_it.add_argument("--max-flows", type=_max_flows, default=16384, metavar="N", help="rules of one process, at most (default: 16384)")
    run_it.add_argument(
        "--vma", nargs="?", const="/var/run/vma_agent.sock", default="", metavar="PATH", help="serve VMA's protocol 3, too, at this socket"
    )
    run_it.add_argument("--notify-dir", default="/tmp/vma", metavar="DIR", help="where VMA processes have their files (default: /tmp/vma)")
    run_it.add_argument("--force-rst", action="store_true", help="reset the TCP connections of VMA processes that die")
    run_it.add_argument("--dry-run", action="store_true", help="say what a start would take over and remove, and change nothing")
    asks = actions.add_parser("status", help="what a running daemon has for whom")
    asks.add_argument("--json", action="store_true", help="as JSON")
    for parser in (run_it, asks):
        parser.add_argument("--socket", default=SOCKET, metavar="PATH", help=f"the daemon's socket (default: {SOCKET})")


def add_parser(commands: Any) -> None:
    """Adds the command."""
    top = commands.add_parser("daemon", help="the privileged daemon, and what it has for whom", description=__doc__)
    add_actions(top)


def _print(found: dict[str, Any]) -> None:
    print(f"pyvmad {found['pid']}: {found['requests']} requests, {found['refusals']} refused")
    for each in found["interfaces"]:
        qdisc = ", own qdisc" if each["own_qdisc"] else ""
        print(f"  {each['name']}: {each['rules']} rules in {each['tables']} tables{qdisc}")
    for each in found["processes"]:
        parts = [f"{each['flows']} flows"]
        parts += [f"TAP {tap['name']} for {tap['serves'] or 'itself'}" for tap in each["taps"]]
        parts += [f"XDP on {name}" for name in each["xdp"]]
        away = "" if each["connected"] else ", not connected"
        print(f"  process {each['pid']} ({each['program']}) of user {each['uid']}{away}: {', '.join(parts)}")


def _status(path: str, json: bool) -> int:
    from ..daemon import status

    try:
        found = status(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no daemon is there") from None
    except ConnectionRefusedError:
        raise UserError(f"{path}: no daemon listens there") from None
    except PermissionError:
        raise UserError(f"{path}: the daemon is for its group alone, and this user is not in it") from None
    if json:
        as_json(found)
    else:
        _print(found)
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; exit status 0. UserError, OSError."""
    if arguments.action == "status":
        return _status(arguments.socket, arguments.json)
    from ..daemon import _run
    from ..daemon._types import Limits

    return _run.run(
        _run.Options(
            socket=arguments.socket,
            group=arguments.group,
            vma=arguments.vma,
            notify=arguments.notify_dir,
            force_rst=arguments.force_rst,
            dry_run=arguments.dry_run,
            limits=Limits(flows=arguments.max_flows),
        )
    )
