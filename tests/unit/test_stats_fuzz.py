"""Statistics files damaged at random: the reader and the views of them say what is wrong, or show what there is, and nothing else happens.

Reading them again after further damage is what happens to a file that changes or grows while it is looked at. The whole test has a
limit of memory.
"""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import stats_sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab import LONG
from memory import limited

from pyvma import stats
from pyvma._cli import _stats_explain, _stats_export, _stats_full, _stats_views, _stats_watch

MEMORY_BYTES = 256 << 20
EXAMPLES = 3000 if LONG else 80
SAMPLE = bytes(stats_sample.sample().content())
SCHEMA_OFFSET, SCHEMA_SIZE, DIRECTORY = struct.unpack_from("=3Q", SAMPLE, 32)
KINDS = ["counter", "gauge", "max", "signed", "enum", "flag", "time", "addr", "port", "mac", "text", "id", "link", "new"]
INTERESTING = [0, 1, 2, 7, 8, 63, 64, 255, 4095, 4096, 65535, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
NUMBERS = st.one_of(st.sampled_from(INTERESTING), st.integers(0, len(SAMPLE) + 64), st.integers(0, (1 << 64) - 1))
PLACES = st.one_of(
    st.integers(0, 35).map(lambda i: i * 8), st.integers(0, 100).map(lambda i: DIRECTORY + i * 8), st.integers(0, len(SAMPLE) - 8)
)

Step = tuple[Any, ...]
STEPS = st.one_of(
    st.tuples(st.just("put"), PLACES, NUMBERS, st.sampled_from("BHIQ")),
    st.tuples(st.just("bytes"), PLACES, st.binary(max_size=32)),
    st.tuples(st.just("cut"), st.integers(0, len(SAMPLE))),
    st.tuples(st.just("append"), st.binary(max_size=64)),
    st.tuples(st.just("lengthen"), st.integers(0, 1 << 42)),
    st.tuples(st.just("copy"), PLACES, PLACES, st.integers(0, 512)),
    st.tuples(
        st.just("field"),
        st.integers(0, 1000),
        st.sampled_from(["name", "kind", "offset", "size", "mask", "names", "help"]),
        st.one_of(st.sampled_from(KINDS), st.integers(-8, 1 << 21), st.none(), st.just([]), st.text(max_size=8), st.floats()),
    ),
)


def reschemed(data: bytearray, step: Step) -> None:
    """One item of a field of the schema is another; the schema moves to the end of the file."""
    try:
        found = json.loads(data[SCHEMA_OFFSET : SCHEMA_OFFSET + SCHEMA_SIZE])
        fields = [item for kind in found["types"] for item in kind["fields"]]
        fields[step[1] % len(fields)][step[2]] = step[3]
        schema = json.dumps(found).encode()
    except (ValueError, TypeError, LookupError):
        return
    struct.pack_into("=Q", data, 24, len(data) + len(schema))
    struct.pack_into("=QQ", data, 32, len(data), len(schema))
    data += schema


def damaged(data: bytearray, step: Step) -> None:
    what = step[0]
    if what == "put" and step[1] + 8 <= len(data):
        struct.pack_into("=" + step[3], data, step[1], step[2] & (1 << 8 * struct.calcsize(step[3])) - 1)
    elif what == "bytes":
        data[step[1] : step[1] + len(step[2])] = step[2]
    elif what == "cut":
        del data[step[1] :]
    elif what == "append":
        data += step[1]
    elif what == "copy":
        data[step[2] : step[2] + step[3]] = data[step[1] : step[1] + step[3]]
    elif what == "field":
        reschemed(data, step)


def write(path: Path, data: bytearray, steps: list[Step]) -> None:
    for step in steps:
        damaged(data, step)
    path.write_bytes(data)
    for step in steps:
        if step[0] == "lengthen":
            os.truncate(path, step[1])


def shown(snapshot: stats.Snapshot) -> None:
    texts = [_stats_views.basic(snapshot, "live", extra) for extra in (False, True)]
    texts += [_stats_full.full(snapshot, "live"), _stats_views.groups(snapshot, "live"), _stats_views.netstat([snapshot])]
    told = _stats_explain.explain(snapshot, everything=True)
    texts += [_stats_export.as_csv(snapshot, ""), told.program, *told.notes, *(group.reason for group in told.groups)]
    texts += ["".join((loss.where, loss.counter, loss.cause)) for loss in told.losses]
    texts += ["".join(row) for record in (*snapshot.rings, *snapshot.sockets) for row in _stats_watch.details(record, None, 0)]
    for text in texts:
        assert re.search(r"[^\n\r\t -~\xa0-\U0010ffff]", text) is None
    json.loads(_stats_export.as_json(snapshot, "live"))
    stats.totals(snapshot)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"pyvma-stats.{stats_sample.PID}"


@pytest.mark.timeout(600)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=not LONG)
@given(first=st.lists(STEPS, max_size=4), second=st.lists(STEPS, max_size=3))
def test_damaged_files(path: Path, first: list[Step], second: list[Step]) -> None:
    data = bytearray(SAMPLE)
    said = ""
    with limited(MEMORY_BYTES):
        write(path, data, first)
        try:
            with stats.attach(path) as process:
                before = process.snapshot()
                shown(before)
                write(path, data, second)
                assert process.state == "dead"
                after = process.snapshot()
                shown(after)
                shown(stats.delta(before, after))
        except stats.StatsError as error:
            said = str(error)
        write(path, data, first)
        stats.processes(str(path.parent), everything=True, clean=True)
    assert said.isprintable()


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=not LONG)
@given(data=st.binary(max_size=8192), head=st.booleans())
def test_random_bytes(path: Path, data: bytes, head: bool) -> None:
    path.write_bytes(SAMPLE[: 4096 * head] + data)
    with limited(MEMORY_BYTES), pytest.raises(stats.StatsError):
        with stats.attach(path) as process:
            process.snapshot()
