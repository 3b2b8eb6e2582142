# SPDX-License-Identifier: Apache-2.0
"""Laws of the metrics: owners have the node's joules, no counter falls, and series are bounded.
Also: pages are readable whatever clients put into names.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics_pages import (
    HELPERS_WAITED_NS,
    WAITED_NS,
    exact,
    field,
    fields,
    fingerprint_of,
    is_monotone,
    query,
    samples,
    snapshots,
    source,
    total,
    window,
)
from qjoule.agent import hourly_tables
from qjoule.agent.hourly_tables import of_hour
from qjoule.agent.minute import Minute
from qjoule.agent.store_rows import minute_table
from qjoule.contract import OwnerKind
from qjoule.metrics.collected import counter_families
from qjoule.metrics.counters import Admission, Counters, Limits
from qjoule.metrics.exposition import (
    OPENMETRICS,
    PROTOBUF,
    TEXT,
    Family,
    Sample,
    content,
    page,
    preferred_format,
)
from qjoule.metrics.interval import Interval, interval_of, safe
from qjoule.metrics.tagged import TagCounters
from qjoule.model.call_outcomes import Waits
from qjoule.model.result import Attribution
from qjoule.reporters.json_report import document
from qjoule.snapshots import Controls

JOULE = 10**9
UNIT_J = 2.0**-14
WAITS = "qjoule_query_wait_seconds_total"
HELPERS_WAITS = "qjoule_query_helper_wait_seconds_total"

_queries = st.builds(
    query,
    shape=st.integers(1, 30),
    cpu_us=st.integers(0, 3000),
    calls=st.integers(0, 50),
    server=st.sampled_from((1, 2)),
)
_others = st.sampled_from(
    [
        {"owner_kind": OwnerKind.SERVER, "pid": 7, "tgid": 7, "server": 1, "cpu_ns": 3_000_000},
        {"owner_kind": OwnerKind.PROCESS, "tgid": 8, "cpu_ns": 2_000_000},
        {"owner_kind": OwnerKind.TRACER, "cpu_ns": 1_000_000},
        {"owner_kind": OwnerKind.KERNEL, "cpu_ns": 500_000},
    ]
)
_windows = st.lists(
    st.tuples(
        st.lists(st.one_of(_queries, _others), max_size=12),
        st.integers(0, 400_000),
        st.integers(0, 50_000),
    ),
    min_size=12,
    max_size=20,
)


@given(_windows, st.integers(0, 8), st.sampled_from((0.5, 1.0)))
def test_every_page_adds_up_and_no_counter_falls(
    windows: list[tuple[list[dict[str, Any]], int, int]], shapes: int, interval_s: float
) -> None:
    raw = dram = 0
    pieces = []
    for number, (rows, more, more_dram) in enumerate(windows):
        raw, dram = raw + more, dram + more_dram
        pieces.append(window(number, rows, raw, dram))
    # A lifetime of 1 s, so that series also leave.
    counters = Counters(Limits(shapes, 1.0), 1e9)
    tags = TagCounters("tenant", Limits(shapes, 1.0))
    before: dict[Any, float] = {}
    for snapshot in source(pieces, range(1, 25)).snapshots(Controls(interval_s, totals=False)):
        counters.take(interval_of(snapshot.interval), snapshot.elapsed_s, 1e9 + snapshot.elapsed_s)
        tags.take(_by_tag(snapshot.interval), snapshot.elapsed_s, 1e9 + snapshot.elapsed_s)
        content = page([*counter_families(counters), *tags.families()], openmetrics=False)
        node, owners = exact(content, "qjoule_node_joules_total"), _owners(content)
        assert {_domain(labels): joules for labels, joules in node.items()} == owners
        by_kind = exact(content, "qjoule_owner_joules_total")
        queries_j = sum(
            joules
            for labels, joules in by_kind.items()
            if 'kind="queries"' in labels and 'domain="package"' in labels
        )
        for name in ("qjoule_query_joules_total", "qjoule_tag_joules_total"):
            assert sum(exact(content, name).values()) == queries_j
        page_samples = samples(content)
        assert is_monotone(before, page_samples)
        per_server = shapes + 2  # other, retired
        assert len(counters.queries) <= 2 * per_server + 1
        assert len(exact(content, "qjoule_tag_calls_total")) <= 2 * per_server + 1
        before = page_samples
    calls = total(before, "qjoule_query_calls_total", server="db:1")
    assert sum(exact(content, WAITS).values()) * JOULE == calls * sum(WAITED_NS)
    final = page(counter_families(counters), openmetrics=True)
    assert samples(final, openmetrics=True)


def test_a_days_sums_are_those_of_pythons_integers() -> None:
    """24 h at 500 to 1000 W: more than 2**55 nJ, where a float64 counts in steps of 8 nJ."""
    rng, length_ns = random.Random(7), 60 * JOULE
    raw = list(accumulate(round(60 * rng.uniform(500, 1000) / UNIT_J) for _ in range(24 * 60)))
    pieces = []
    for number, counts in enumerate(raw):
        rows = [query(shape, rng.randrange(40_000_000), shape) for shape in (1, 2, 3)]
        pieces.append(window(number, rows, counts % 2**32, number, length_ns))
    counters, tables = Counters(Limits(2, 1e9), 0.0), []
    for snapshot in source(pieces, range(1, 4), length_ns).snapshots(Controls(3600.0)):
        minute = Minute(int(snapshot.elapsed_s))
        minute.add(
            counters.take(interval_of(snapshot.interval), snapshot.elapsed_s, snapshot.elapsed_s)
        )
        tables.append(minute_table(minute, "package", "0" * 16))
        ledger = snapshot.total
    drawn_nj = (2 * raw[-1] * 1953125 + 32) // 64  # of 1953125/32 nJ each
    assert drawn_nj > 2**55
    assert ledger.main.measured_nj == sum(ledger.main.parts_nj.values()) == drawn_nj
    assert sum(row.energy_nj for row in ledger.rows) == ledger.main.parts_nj["queries"]
    assert document(ledger)["totals_j"]["measured"] == drawn_nj / 10**9, "rounded correctly"
    assert (
        _owners(page(counter_families(counters), openmetrics=False))["package"] * JOULE == drawn_nj
    )
    hour_rows = of_hour(pa.concat_tables(tables), 0).to_pylist()
    for is_node in (True, False):
        of = [
            row for row in hour_rows if (row["kind"] == "node") == is_node and row["name"] != "dram"
        ]
        assert sum(row["energy_nj"] for row in of) == drawn_nj
    for row in hour_rows:
        waits = [row[name] for name in hourly_tables.WAITS]
        each = (1_200_000, *WAITED_NS)
        is_query = row["kind"] == "queries" and row["calls"]
        assert waits == [row["calls"] * ns if is_query else None for ns in each]
        assert is_query or row["helpers_ns"] is None
    helpers = [sum(row[name] or 0 for row in hour_rows) for name in hourly_tables.HELPERS]
    assert helpers == [len(raw) * ns for ns in (1_203_007, *HELPERS_WAITED_NS)], "of shape 1"


def test_waits_have_series_where_they_are_recorded() -> None:
    rows = [query(1, 1000, calls=2), query(2, 1000, calls=3, server=2)]
    counters = Counters(Limits(), 0.0)
    for snapshot in source([window(n, rows, 1000 * n) for n in range(30)], (1, 2)).snapshots(
        Controls(0.5, totals=False)
    ):
        counters.take(interval_of(snapshot.interval), snapshot.elapsed_s, 0.0)
    page_samples = samples(page(counter_families(counters), openmetrics=False))
    named = {"server": "db:1", "fingerprint": fingerprint_of(1)}
    calls = total(page_samples, "qjoule_query_calls_total", **named)
    assert calls and total(page_samples, "qjoule_query_calls_total", server="db:2") == 90
    waits = [total(page_samples, WAITS, kind=kind, **named) for kind in Waits._fields[1:]]
    assert waits == pytest.approx([calls * ns / JOULE for ns in WAITED_NS], abs=0)
    assert not any(name == WAITS and ("server", "db:2") in labels for name, labels in page_samples)
    helpers = [total(page_samples, HELPERS_WAITS, kind=kind, **named) for kind in Waits._fields[1:]]
    assert helpers == pytest.approx([calls * ns / JOULE for ns in HELPERS_WAITED_NS], abs=0)
    assert not any(
        name == HELPERS_WAITS and ("server", "db:2") in labels for name, labels in page_samples
    )


def _by_tag(result: Attribution) -> Attribution:
    """The sums if each statement had a tag with its fingerprint."""
    rows = (
        replace(row, keys={"tag:tenant": row.keys.get("fingerprint", "")}) for row in result.rows
    )
    return replace(result, rows=tuple(rows))


def _domain(labels: str) -> str:
    return labels.partition('domain="')[2].partition('"')[0]


def _owners(content: bytes) -> dict[str, Any]:
    joules_of: dict[str, Any] = {}
    for labels, joules in exact(content, "qjoule_owner_joules_total").items():
        joules_of[_domain(labels)] = joules_of.get(_domain(labels), 0) + joules
    return joules_of


def settled() -> Admission[str]:
    """Members a, b and c, last seen at 10 s."""
    admission: Admission[str] = Admission(3, 100.0)
    for now_s in (0.0, 10.0):
        assert admission.admit({"a": 3, "b": 2, "c": 1}, now_s) == []
    return admission


def test_keys_are_admitted_when_they_are_seen_again_those_of_most_weight_first() -> None:
    admission: Admission[str] = Admission(2, 100.0)
    admission.admit({"a": 1, "b": 3, "c": 2}, 0.0)
    assert not len(admission)
    admission.admit({"a": 1, "b": 3, "c": 2}, 10.0)
    assert [key in admission for key in "abc"] == [False, True, True]


def test_a_member_unseen_for_a_lifetime_gives_way_to_one_that_needs_its_place() -> None:
    admission = settled()
    admission.admit({"a": 1, "b": 1, "d": 1}, 60.0)
    assert admission.admit({"a": 1, "b": 1, "d": 1}, 100.0) == [], "c was seen 90 s ago"
    assert admission.admit({"a": 1, "b": 1, "d": 1}, 120.0) == ["c"]
    assert "d" in admission and "c" not in admission


# --------------------------------------------------------------------------------------------------
#
# Pages hold whatever clients put into names, and both of Prometheus's parsers read them.

ESCAPED = 'a"b\nc\\nd\\'  #: as it would be without `safe`
HOSTILE = ('a"b', "a\nb", "a\0b", "x" * 10_000, "\u202eabc", "\\", "é\ud800")


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("openmetrics", [False, True])
def test_any_value_of_a_label_can_be_read_again(value: str, openmetrics: bool) -> None:
    shown = safe(value)
    assert len(shown) <= 128 and "\n" not in shown and "\0" not in shown
    family = Family(
        "qjoule_test", "gauge", value[:50], samples=[Sample((("a", shown), ("b", ESCAPED)), "1")]
    )
    ((name, labels),) = samples(page([family], openmetrics=openmetrics), openmetrics=openmetrics)
    assert (name, labels) == ("qjoule_test", (("a", shown), ("b", ESCAPED)))


def test_the_format_is_the_one_that_is_preferred() -> None:
    prometheus = (
        "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    )
    assert preferred_format(prometheus) == OPENMETRICS
    assert preferred_format(f"application/vnd.google.protobuf;{prometheus}") == PROTOBUF
    for accept in ("", "text/plain, application/openmetrics-text;q=0.5", "rubbish;;,;q="):
        assert preferred_format(accept) == TEXT


def intervals() -> list[tuple[Interval, float]]:
    return [(interval_of(snapshot.interval), snapshot.elapsed_s) for snapshot in snapshots(20)]


def counted(limits: Limits = Limits()) -> Counters:  # noqa: B008 (it cannot change)
    counters = Counters(limits, 1e9)
    for interval, now_s in intervals():
        counters.take(interval, now_s, 1e9 + now_s)
    return counters


def delimited(messages: bytes) -> Iterator[bytes]:
    """The messages of a page, each of which follows its length."""
    while messages:
        _, message = next(fields(b"\x0a" + messages))
        yield message
        length = max(1, -(-len(message).bit_length() // 7))
        messages = messages[length + len(message) :]


def test_native_histograms_have_every_call() -> None:
    families = list(counter_families(counted()))
    text = samples(page(families, openmetrics=False))
    messages = {
        field(message, 1)[0].decode(): message for message in delimited(content(families, PROTOBUF))
    }
    assert {"qjoule_node_joules_total", "qjoule_query_info"} <= messages.keys()
    calls = 0
    for metric in field(messages["qjoule_query_latency_seconds"], 4):
        (histogram,) = field(metric, 7)
        zigzag = field(histogram, 13)
        deltas = [code >> 1 if code % 2 == 0 else -(code + 1 >> 1) for code in zigzag]
        (count,) = field(histogram, 1)
        assert sum(accumulate(deltas)) == count and field(histogram, 5) == [0]
        if count:
            (span,) = field(histogram, 12)
            # Bucket 20 begins at 1024 us, near 2**-10 s: the bucket that ends at 2**-9 s.
            assert field(span, 1) == [2 * 9 - 1] and field(span, 2) == [1]
        calls += count
    assert calls == total(text, "qjoule_query_latency_seconds_count") == 120
    joules = field(messages["qjoule_node_joules_total"], 4)
    assert sorted(field(field(metric_, 3)[0], 1)[0] for metric_ in joules) == sorted(
        value for (name, _), value in text.items() if name == "qjoule_node_joules_total"
    )


def test_sums_of_series_that_leave_are_kept() -> None:
    counters = counted(Limits(1, 1.0))
    interval, now_s = intervals()[-1]
    calls = sum(series.amounts.calls for series in counters.queries.values())
    retired_calls = 0
    for step in (1, 2):  # first one series leaves, then that which took its place
        (shape,) = (s for s in counters.queries if s.fingerprint not in ("other", "retired"))
        retired_calls += counters.queries[shape].amounts.calls
        others = {s: q for s, q in interval.queries.items() if s != shape}
        for after_s in (0, 5):
            counters.take(replace(interval, queries=others), now_s + 10 * step + after_s, 2e9)
            calls += sum(query.amounts.calls for query in others.values())
        assert shape not in counters.queries
        retired = counters.queries[shape._replace(fingerprint="retired")]
        if step == 1:
            assert retired.amounts.calls == retired_calls
        assert sum(s.amounts.calls for s in counters.queries.values()) == calls
