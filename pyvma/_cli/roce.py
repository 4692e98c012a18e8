"""RoCE settings of RDMA devices: GID tables, modes, ToS, traffic classes, time to live, on and off.

Everything is read from and written to sysfs and configfs below --root; what is written is read again.
"""

from __future__ import annotations

import argparse
import ipaddress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from . import UserError
from ._show import as_json, facts, table, text_of

if TYPE_CHECKING:
    from ..ring.roce import Roce
    from ..ring.tclass import Rule, Table

EXAMPLES = """examples:
  pyvma roce status                             every device: GIDs, RDMA-CM's mode and ToS, traffic classes
  pyvma roce mode mlx5_0 1 v2                   RDMA-CM's connections by RoCE v2, as cma_roce_mode -d mlx5_0 -p 1 -m 2
  pyvma roce tos mlx5_0 1 106                   ToS of RDMA-CM's queue pairs that set none, as cma_roce_tos
  pyvma roce tclass add mlx5_0 1 tclass=16,src_ip=1.1.1.2,dst_ip=1.1.1.0/24
  pyvma roce tclass explain mlx5_0 1 --src 1.1.1.2 --dst 1.1.1.9
  pyvma roce disable 0000:03:00.0               Ethernet only: UDP port 4791 is like any other
  pyvma roce sl 160                             what a ToS becomes: DSCP, service level, VLAN priority
  pyvma roce ack-timeout --us 100000            the value that waits at least 100 ms
"""
TCLASS = """rules: tclass=16,src_ip=1.1.1.2,dst_ip=1.1.1.0/24 ("tclass=" may be left out; src_ip6, dst_ip6; 0 to 255)

Precedence: a value for all queue pairs goes before every rule. Else a rule whose addresses match applies, whenever it was inserted;
between several that match nothing is promised, and `explain` says so.
"""


def _common() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--root", default="/", metavar="DIR", help="where sys/ is (default: /); nothing outside is touched")
    parser.add_argument("--json", action="store_true", help="as JSON")
    return parser


def _port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("device", metavar="DEVICE", help="e.g. mlx5_0")
    parser.add_argument("port", metavar="PORT", type=int, help="from 1")


def _add_tclass(actions: Any, common: list[argparse.ArgumentParser]) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    text = "traffic classes of RoCE v2 queue pairs (NVIDIA's mlx5 driver)"
    top = actions.add_parser("tclass", help=text, description=text, epilog=TCLASS, formatter_class=raw)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    _port(verbs.add_parser("list", parents=common, help="the value for all and the rules"))
    put = verbs.add_parser("set", parents=common, help="one value for all queue pairs, 0 to 255; none ends it")
    _port(put)
    put.add_argument("value", metavar="VALUE")
    for verb, doc in (("add", "a rule; one of the same addresses is replaced"), ("del", "takes away the rule of these addresses")):
        parser = verbs.add_parser(verb, parents=common, help=doc, epilog=TCLASS, formatter_class=raw)
        _port(parser)
        parser.add_argument("rule", metavar="RULE")
    explain = verbs.add_parser("explain", parents=common, help="which value a queue pair gets, and why")
    _port(explain)
    explain.add_argument("--src", required=True, type=ipaddress.ip_address, metavar="ADDRESS")
    explain.add_argument("--dst", required=True, type=ipaddress.ip_address, metavar="ADDRESS")


def add_parser(commands: Any) -> None:
    """Adds the command."""
    raw = argparse.RawDescriptionHelpFormatter
    top = commands.add_parser("roce", help="RoCE settings of RDMA devices", description=__doc__, epilog=EXAMPLES, formatter_class=raw)
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    common = [_common()]
    status = actions.add_parser("status", parents=common, help="what is in force")
    status.add_argument("device", nargs="?", metavar="DEVICE", help="only this one")
    mode = actions.add_parser("mode", parents=common, help="RoCE version of RDMA-CM's connections (cma_roce_mode)")
    _port(mode)
    mode.add_argument("mode", nargs="?", choices=("v1", "v2"), help="nothing: print it")
    tos = actions.add_parser("tos", parents=common, help="ToS of RDMA-CM's queue pairs that set none (cma_roce_tos)")
    _port(tos)
    tos.add_argument("tos", nargs="?", type=int, metavar="TOS", help="0 to 255; nothing: print it")
    for name, text in (("enable", "RoCE on"), ("disable", "RoCE off: raw-Ethernet queue pairs only")):
        parser = actions.add_parser(name, parents=common, help=text)
        parser.add_argument("device", metavar="DEVICE", help="e.g. mlx5_0 or 0000:03:00.0")
    _add_tclass(actions, common)
    ttl = actions.add_parser("ttl", parents=common, help="time to live of RC queue pairs (NVIDIA's mlx5 driver)")
    _port(ttl)
    ttl.add_argument("ttl", nargs="?", type=int, metavar="TTL", help="0 to 255; nothing: print it")
    sl = actions.add_parser("sl", parents=common, help="what a ToS becomes: SL = ToS >> 5, VLAN priority = SL & 7")
    sl.add_argument("tos", type=int, metavar="TOS")
    ack = actions.add_parser("ack-timeout", parents=common, help="ACK timeouts of RDMA-CM identifiers: 4.096 us * 2^value")
    ack.add_argument("value", nargs="?", type=int, metavar="VALUE", help="0 to 31; 0: for ever")
    ack.add_argument("--us", type=float, metavar="US", help="the value that waits at least so many microseconds")
    ack.add_argument("--try", dest="attempt", action="store_true", help="set it on an identifier of librdmacm's, to see that it can be")


# ---- what is in force ----


def _status(roce: Roce, name: str) -> dict[str, Any]:
    device = roce.device(name)
    ports = []
    for port in device.ports:
        settings = roce.settings(name, port.number)
        rules = settings.tclass
        ports.append(
            {
                **asdict(port),
                "mode": settings.mode,
                "tos": settings.tos,
                "traffic_class": None if rules is None else _table_json(rules),
                "ttl": settings.ttl,
            }
        )
    return {"name": name, "pci": device.pci, "roce_enable": roce.enabled(name), "bond": _bond(device), "ports": ports}


def _bond(device: Any) -> dict[str, Any] | None:
    return None if device.bond is None else asdict(device.bond)


def _show_status(found: dict[str, Any]) -> None:
    values = {"PCI address": found["pci"], "RoCE": found["roce_enable"]}
    if found["roce_enable"] is None:
        values["RoCE"] = "the driver does not say: devlink dev param show"
    if found["bond"]:
        bond = found["bond"]
        values["bond"] = f"{bond['name']} ({bond['mode']}), " + ("RoCE LAG" if bond["roce_lag"] else f"no RoCE LAG: {bond['reason']}")
    facts(f"device {found['name']}", values)
    for port in found["ports"]:
        rules = port["traffic_class"]
        lines = None if rules is None else [*([f"all: {rules['global']}"] if rules["global"] is not None else []), *rules["rules"]]
        values = {"netdev": port["netdev"], "state": port["state"], "RDMA-CM mode": port["mode"], "RDMA-CM ToS": port["tos"]}
        facts(f"port {port['number']}", {**values, "traffic class": lines, "TTL": port["ttl"]}, "  ")
        if port["gids"]:
            rows = [(gid["index"], gid["gid"], gid["ipv4"], gid["type"], gid["netdev"]) for gid in port["gids"]]
            table(("INDEX", "GID", "IPv4", "TYPE", "NETDEV"), rows, "      ")


def _run_status(roce: Roce, arguments: argparse.Namespace) -> Any:
    found = [_status(roce, name) for name in ([arguments.device] if arguments.device else roce.devices())]
    if not arguments.json:
        for device in found:
            _show_status(device)
        if not found:
            print("no RDMA devices")
    return {"devices": found}


# ---- single settings ----


def _table_json(rules: Table) -> dict[str, Any]:
    return {"global": rules.value, "rules": [str(rule) for rule in rules.rules]}


def _rule(arguments: argparse.Namespace) -> Rule:
    from ..ring import tclass

    if arguments.verb == "set":
        value = arguments.value
        return tclass.Rule(tclass.REMOVE) if value in ("none", "-1") else _global(tclass.parse_rule(value))
    text = arguments.rule if arguments.verb == "add" or "tclass" in arguments.rule else f"tclass=-1,{arguments.rule}"
    rule = tclass.parse_rule(text)
    if rule.is_global:
        raise UserError(f"{arguments.rule!r} names no address; `set` is for all queue pairs")
    if arguments.verb == "add" and rule.tclass == tclass.REMOVE:
        raise UserError(f"{arguments.rule!r} takes a rule away; that is `del`")
    return tclass.Rule(tclass.REMOVE, rule.src, rule.dst) if arguments.verb == "del" else rule


def _global(rule: Rule) -> Rule:
    if not rule.is_global:
        raise UserError(f"{rule}: `set` is for all queue pairs; `add` takes rules")
    return rule


def _run_tclass(roce: Roce, arguments: argparse.Namespace) -> Any:
    from ..ring import tclass

    device, port = arguments.device, arguments.port
    if arguments.verb in ("set", "add", "del"):
        rules: Table | None = roce.write_tclass(device, port, _rule(arguments))
    else:
        rules = roce.tclass(device, port)
    if rules is None:
        raise UserError(f"{device} port {port}: the driver has no traffic class rules (NVIDIA's mlx5 driver has)")
    if arguments.verb != "explain":
        if not arguments.json:
            print(rules if str(rules) else "neither a value for all nor rules")
        return _table_json(rules)
    answer = tclass.explain(rules, arguments.src, arguments.dst)
    if not arguments.json:
        print(f"traffic class {text_of(answer.tclass)}: {answer.reason}")
        for rule in answer.matching:
            print(f"    matches: {rule}")
    return {**asdict(answer), "matching": [str(rule) for rule in answer.matching]}


def _run_setting(roce: Roce, arguments: argparse.Namespace) -> Any:
    """mode, tos and ttl: set when a value is given, then printed."""
    name = arguments.action
    value = getattr(arguments, name)
    if value is not None:
        getattr(roce, f"set_{name}")(arguments.device, arguments.port, value)
    value = getattr(roce, name)(arguments.device, arguments.port)
    if not arguments.json:
        print("not told by the kernel" if value is None else value)
    return {"device": arguments.device, "port": arguments.port, name: value}


def _run_enable(roce: Roce, arguments: argparse.Namespace) -> Any:
    on = arguments.action == "enable"
    roce.set_enabled(arguments.device, on)
    if not arguments.json:
        print(f"{arguments.device}: RoCE {'on' if on else 'off'}; devlink's enable_roce is the kernel's own way")
    return {"device": arguments.device, "roce_enable": on}


def _run_sl(_roce: Roce, arguments: argparse.Namespace) -> Any:
    from ..ring import roce

    found = asdict(roce.priority(arguments.tos))
    if not arguments.json:
        print("ToS {tos}: DSCP {dscp}, service level {sl}, VLAN priority {pcp} (in tagged frames only)".format(**found))
    return found


def _run_ack(_roce: Roce, arguments: argparse.Namespace) -> Any:
    from ..ring import roce

    if (arguments.value is None) == (arguments.us is None):
        raise UserError("ack-timeout: either VALUE or --us")
    value = arguments.value if arguments.us is None else roce.ack_timeout_for(arguments.us)
    us = roce.ack_timeout_us(value)
    if arguments.attempt:
        roce.try_ack_timeout(value)
    if not arguments.json:
        print(f"ACK timeout {value}: {'for ever' if us is None else f'{us:g} us'}{', set on an identifier' if arguments.attempt else ''}")
    return {"value": value, "us": us, "tried": arguments.attempt}


ACTIONS = {
    "status": _run_status,
    "mode": _run_setting,
    "tos": _run_setting,
    "ttl": _run_setting,
    "enable": _run_enable,
    "disable": _run_enable,
    "tclass": _run_tclass,
    "sl": _run_sl,
    "ack-timeout": _run_ack,
}


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0, or UserError."""
    from ..ring.roce import Roce

    try:
        found = ACTIONS[arguments.action](Roce(arguments.root), arguments)
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from None
    if arguments.json:
        as_json(found)
    return 0
