"""Rules for the traffic class of RoCE v2 queue pairs, as mlx5's attribute `tc/PORT/traffic_class` takes and shows them.

    tclass=16,src_ip=1.1.1.2,dst_ip=1.1.1.0/24      a rule; "tclass=" may be left out, the order of the fields is free
    106                                             one value for all queue pairs of the port; shown as "Global tclass=106"
    tclass=-1,src_ip=1.1.1.2                        takes a rule away (-1 alone: the value for all)

Addresses of IPv6 are src_ip6 and dst_ip6; only IPv4 destinations take a prefix.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["REMOVE", "Answer", "Rule", "RuleError", "Table", "explain", "parse_rule", "parse_table"]

REMOVE = -1
GLOBAL = "Global "
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class RuleError(ValueError):
    """A rule that is none; the text says what is wrong with it."""


@dataclass(frozen=True)
class Rule:
    """One rule: a traffic class, 0 to 255 or REMOVE, for queue pairs of these addresses; with neither it is for all."""

    tclass: int
    src: Address | None = None
    dst: Network | None = None

    @property
    def is_global(self) -> bool:
        """Whether it is for all queue pairs."""
        return self.src is None and self.dst is None

    def matches(self, src: Address, dst: Address) -> bool:
        """Whether it is for a queue pair of these addresses."""
        if self.src is not None and self.src != src:
            return False
        return self.dst is None or (dst.version == self.dst.version and dst in self.dst)

    def same_addresses(self, other: Rule) -> bool:
        """Whether one would replace the other."""
        return (self.src, self.dst) == (other.src, other.dst)

    def __str__(self) -> str:
        fields = [f"tclass={self.tclass}"]
        if self.src is not None:
            fields.append(f"src_ip{'6' if self.src.version == 6 else ''}={self.src}")
        if self.dst is not None:
            fields.append(f"dst_ip6={self.dst.network_address}" if self.dst.version == 6 else f"dst_ip={self.dst}")
        return ",".join(fields)


def _value(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]+|0x[0-9a-fA-F]+", text):
        raise RuleError(f"{text!r} is not a traffic class: 0 to 255, or -1 to remove")
    value = int(text, 16 if text.startswith("0x") else 10)
    if not REMOVE <= value <= 255:
        raise RuleError(f"traffic class {value}: 0 to 255, or -1 to remove")
    return value


def _address(field: str, text: str) -> Address:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise RuleError(f"{field}={text}: not an address{'; a source takes no prefix' if '/' in text else ''}") from None
    if found.version != (6 if field.endswith("6") else 4):
        raise RuleError(f"{field}={text}: an IPv{found.version} address; that is {field.rstrip('6')}{'6' if found.version == 6 else ''}=")
    return found


def _network(field: str, text: str) -> Network:
    if "/" not in text:
        return ipaddress.ip_network(_address(field, text))
    if field.endswith("6"):
        raise RuleError(f"{field}={text}: only IPv4 destinations take a prefix")
    _address(field, text.partition("/")[0])
    try:
        found = ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        raise RuleError(f"{field}={text}: the prefix is 1 to 32") from None
    # The driver takes a prefix of 0 for 32: what would match everything is better refused than quietly matching one address.
    if found.prefixlen == 0 or not text.partition("/")[2].isdigit():
        raise RuleError(f"{field}={text}: the prefix is 1 to 32")
    return found


def parse_rule(text: str) -> Rule:
    """A rule from its text. RuleError says what is wrong with it."""
    given: dict[str, str] = {}
    for piece in text.split(","):
        field, equals, value = piece.strip().partition("=")
        if not equals:
            field, value = "tclass", field
        field, value = field.strip(), value.strip()
        if field not in ("tclass", "src_ip", "dst_ip", "src_ip6", "dst_ip6"):
            raise RuleError(f"{piece.strip()!r}: there is no {field!r}: tclass, src_ip, dst_ip, src_ip6, dst_ip6")
        if field in given:
            raise RuleError(f"{field} stands twice")
        given[field] = value
    if "tclass" not in given:
        raise RuleError(f"{text!r}: the traffic class is missing")
    if {"src_ip", "dst_ip"} & given.keys() and {"src_ip6", "dst_ip6"} & given.keys():
        raise RuleError(f"{text!r}: addresses of two families")
    src = next((_address(field, given[field]) for field in ("src_ip", "src_ip6") if field in given), None)
    dst = next((_network(field, given[field]) for field in ("dst_ip", "dst_ip6") if field in given), None)
    return Rule(_value(given["tclass"]), src, dst)


@dataclass(frozen=True)
class Table:
    """What is in force on a port."""

    value: int | None = None
    """For all queue pairs; None: no such value."""
    rules: tuple[Rule, ...] = ()

    def apply(self, rule: Rule) -> Table:
        """The table after this was written to it."""
        if rule.is_global:
            return replace(self, value=None if rule.tclass == REMOVE else rule.tclass)
        others = tuple(other for other in self.rules if not other.same_addresses(rule))
        return replace(self, rules=others if rule.tclass == REMOVE else (*others, rule))

    def has(self, rule: Rule) -> bool:
        """Whether what was written is in force (a removal: is not)."""
        if rule.is_global:
            return self.value == (None if rule.tclass == REMOVE else rule.tclass)
        if rule.tclass == REMOVE:
            return not any(other.same_addresses(rule) for other in self.rules)
        return rule in self.rules

    def __str__(self) -> str:
        lines = [] if self.value is None else [f"{GLOBAL}tclass={self.value}"]
        return "\n".join(lines + [str(rule) for rule in self.rules])


def parse_table(text: str) -> Table:
    """A table from what the attribute shows. RuleError for a line that is no rule."""
    table = Table()
    for line in text.splitlines():
        rule = line.strip().removeprefix(GLOBAL).strip().rstrip(",")
        if rule:
            table = table.apply(parse_rule(rule))
    return table


@dataclass(frozen=True)
class Answer:
    """Which traffic class a queue pair gets. `tclass` None: the queue pair's own."""

    tclass: int | None
    reason: str
    defined: bool = True
    """False: several rules match with different values, and no documentation says which applies."""
    matching: tuple[Rule, ...] = ()


def _driver_order(rule: Rule) -> tuple[int, int]:
    """mlx5 looks for rules of both addresses first, then of the destination, then of the source; longer prefixes first."""
    kind = 0 if rule.src is not None and rule.dst is not None else 1 if rule.dst is not None else 2
    return kind, -(rule.dst.prefixlen if rule.dst is not None else 0)


def explain(table: Table, src: Address, dst: Address) -> Answer:
    """Which value applies to a RoCE v2 queue pair of these addresses, and why.

    As documented: a value for all goes before every rule; else a rule that matches applies; between several the order of their insertion
    plays no part, and nothing else is promised. What mlx5's driver does then is told, with `defined` False.
    """
    if src.version != dst.version:
        raise RuleError(f"{src} and {dst} are of two families")
    if table.value is not None:
        hidden = tuple(rule for rule in table.rules if rule.matches(src, dst))
        return Answer(table.value, "the port has a value for all queue pairs, which goes before every rule", matching=hidden)
    matching: tuple[Rule, ...] = _matching(table.rules, src, dst)
    if not matching:
        return Answer(None, "no value for all and no rule that matches: the queue pair's own (ibv_modify_qp; RDMA-CM's ToS)")
    first = matching[0]
    if len({rule.tclass for rule in matching}) == 1:
        return Answer(first.tclass, f"no value for all, and {first} matches", matching=matching)
    reason = f"{len(matching)} rules match and their order is not documented; mlx5's driver takes {first}"
    return Answer(first.tclass, reason, defined=False, matching=matching)


def _matching(rules: Iterable[Rule], src: Address, dst: Address) -> tuple[Rule, ...]:
    return tuple(sorted((rule for rule in rules if rule.matches(src, dst)), key=_driver_order))
