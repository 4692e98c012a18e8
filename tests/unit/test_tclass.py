"""Traffic class rules: their text, and which of them applies."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyvma.ring.tclass import REMOVE, Rule, RuleError, Table, explain, parse_rule, parse_table

IP = ipaddress.ip_address
# Few addresses, so that rules meet.
hosts = st.integers(0, 15).map(lambda n: ipaddress.IPv4Address(f"1.1.1.{n}"))
hosts6 = st.integers(0, 3).map(lambda n: ipaddress.IPv6Address(f"fd00::{n:x}"))
networks = st.tuples(hosts, st.integers(24, 32)).map(lambda pair: ipaddress.IPv4Network(pair, strict=False))
classes = st.integers(0, 255)
rules4 = st.builds(Rule, classes, st.none() | hosts, st.none() | networks)
rules6 = st.builds(Rule, classes, st.none() | hosts6, st.none() | hosts6.map(ipaddress.IPv6Network))
rules = rules4 | rules6
with_addresses = rules.filter(lambda rule: not rule.is_global)


def test_the_documented_example() -> None:
    rule = parse_rule("tclass=16,src_ip=1.1.1.2,dst_ip=1.1.1.0/24")
    assert rule == Rule(16, ipaddress.IPv4Address("1.1.1.2"), ipaddress.IPv4Network("1.1.1.0/24"))
    assert parse_rule("16,src_ip=1.1.1.2,dst_ip=1.1.1.0/24") == rule
    assert parse_rule(" dst_ip=1.1.1.77/24 , src_ip=1.1.1.2, tclass=0x10 ") == rule
    assert parse_rule("106") == Rule(106)
    assert parse_rule("-1") == Rule(REMOVE)


@given(rules)
def test_text_and_back(rule: Rule) -> None:
    assert parse_rule(str(rule)) == rule
    assert parse_rule(str(rule).removeprefix("tclass=")) == rule


@given(st.permutations(["tclass=7", "src_ip=1.1.1.2", "dst_ip=1.1.1.0/24"]))
def test_the_order_of_fields_is_free(fields: list[str]) -> None:
    assert parse_rule(",".join(fields)) == parse_rule("7,src_ip=1.1.1.2,dst_ip=1.1.1.0/24")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not a traffic class"),
        ("src_ip=1.1.1.2", "missing"),
        ("256", "0 to 255"),
        ("-2", "0 to 255"),
        ("tclass=", "is not a traffic class"),
        ("tclass=1,tclass=2", "twice"),
        ("1,2", "twice"),
        ("1,src_ip=1.1.1.2/24", "takes no prefix"),
        ("1,src_ip=fd00::1", "src_ip6="),
        ("1,src_ip6=1.1.1.1", "that is src_ip="),
        ("1,dst_ip=1.1.1.0/33", "1 to 32"),
        ("1,dst_ip=1.1.1.0/0", "1 to 32"),
        ("1,dst_ip=1.1.1.0/255.255.255.0", "1 to 32"),
        ("1,dst_ip6=fd00::/64", "only IPv4"),
        ("1,dst_ip=1.1.1", "not an address"),
        ("1,src_ip=1.1.1.1,dst_ip6=fd00::1", "two families"),
        ("1,colour=red", "there is no 'colour'"),
    ],
)
def test_what_is_no_rule(text: str, told: str) -> None:
    with pytest.raises(RuleError, match=told):
        parse_rule(text)


@given(st.text(max_size=40))
def test_any_text_is_a_rule_or_an_error(text: str) -> None:
    try:
        rule = parse_rule(text)
    except RuleError:
        return
    assert REMOVE <= rule.tclass <= 255


@given(st.lists(rules))
def test_a_table_shows_what_was_written(written: list[Rule]) -> None:
    table = Table()
    for rule in written:
        table = table.apply(rule)
        assert table.has(rule)
    assert parse_table(str(table)) == table


@given(st.lists(with_addresses), with_addresses)
def test_removing_needs_no_value(written: list[Rule], rule: Rule) -> None:
    table = Table()
    for entry in (*written, rule):
        table = table.apply(entry)
    removal = Rule(REMOVE, rule.src, rule.dst)
    after = table.apply(removal)
    assert after.has(removal)
    assert not any(entry.same_addresses(rule) for entry in after.rules)
    assert len(after.rules) == len(table.rules) - 1
    assert after.apply(removal) == after


def tables(value: st.SearchStrategy[int | None]) -> st.SearchStrategy[Table]:
    def build(number: int | None, entries: list[Rule]) -> Table:
        table = Table(number)
        for entry in entries:
            table = table.apply(entry)
        return table

    return st.builds(build, value, st.lists(rules4.filter(lambda rule: not rule.is_global), max_size=6))


@given(tables(classes), hosts, hosts)
def test_a_value_for_all_goes_before_every_rule(table: Table, src: ipaddress.IPv4Address, dst: ipaddress.IPv4Address) -> None:
    answer = explain(table, src, dst)
    assert (answer.tclass, answer.defined) == (table.value, True)


@given(tables(st.none()), hosts, hosts, st.randoms())
def test_rules_by_their_addresses(table: Table, src: ipaddress.IPv4Address, dst: ipaddress.IPv4Address, random) -> None:
    """What matches and nothing else; the order of insertion plays no part; what is not promised is said."""
    matching = [rule for rule in table.rules if rule.src in (None, src) and (rule.dst is None or dst in rule.dst)]
    answer = explain(table, src, dst)
    assert set(answer.matching) == set(matching)
    assert (answer.tclass is None) == (not matching)
    if matching:
        assert answer.tclass in {rule.tclass for rule in matching}
        assert answer.defined == (len({rule.tclass for rule in matching}) == 1)
    shuffled = list(table.rules)
    random.shuffle(shuffled)
    assert explain(Table(None, tuple(shuffled)), src, dst).tclass == answer.tclass


@given(hosts6, hosts)
def test_two_families_are_refused(src: ipaddress.IPv6Address, dst: ipaddress.IPv4Address) -> None:
    with pytest.raises(RuleError, match="two families"):
        explain(Table(), src, dst)


def test_what_the_driver_does_between_rules() -> None:
    table = parse_table(
        "tclass=1,src_ip=1.1.1.2\ntclass=2,dst_ip=1.1.1.0/24\ntclass=3,dst_ip=1.1.1.0/28\ntclass=4,src_ip=1.1.1.2,dst_ip=1.1.1.0/24"
    )
    assert explain(table, IP("1.1.1.2"), IP("1.1.1.9")).tclass == 4
    assert explain(table, IP("1.1.1.3"), IP("1.1.1.9")).tclass == 3
    assert explain(table, IP("1.1.1.3"), IP("1.1.1.99")).tclass == 2
    assert explain(table, IP("1.1.1.2"), IP("9.9.9.9")).tclass == 1
    assert explain(table, IP("1.1.1.3"), IP("9.9.9.9")).tclass is None


def test_what_the_driver_shows() -> None:
    table = parse_table(
        "Global tclass=106\nsrc_ip=1.1.1.2,dst_ip=1.1.1.0/24,tclass=16\ndst_ip6=fd00:0000:0000:0000:0000:0000:0000:0001,tclass=8\n"
    )
    assert table.value == 106
    assert [rule.tclass for rule in table.rules] == [16, 8]
