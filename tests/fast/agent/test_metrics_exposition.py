# SPDX-License-Identifier: Apache-2.0
"""Pages hold whatever clients put into names, and both of Prometheus's parsers read them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from metrics_pages import query, samples, source, total, window
from qjoule.contract import LATENCY_BUCKETS
from qjoule.metrics.collected import label_name, of_counters
from qjoule.metrics.counters import Counters, Limits
from qjoule.metrics.exposition import OPENMETRICS, TEXT, content, page, wanted
from qjoule.metrics.families import EDGES, EDGES_S, Family, Sample
from qjoule.metrics.interval import Interval, interval_of, safe
from qjoule.metrics.protobuf import PROTOBUF
from qjoule.shapes.other_id import OtherId
from qjoule.snapshots import Controls

HOSTILE = (
    'a"b',
    "a\nb",
    "a\\nb",
    "a\0b",
    "x" * 10_000,
    "\u202eabc",
    "\\",
    '"',
    "{}",
    "é\ud800",
    "#",
)


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("openmetrics", [False, True])
def test_any_value_of_a_label_can_be_read_again(value: str, openmetrics: bool) -> None:
    shown = safe(value)
    assert len(shown) <= 128 and "\n" not in shown and "\0" not in shown
    family = Family("qjoule_test", "gauge", value[:50], samples=[Sample((("a", shown),), "1")])
    ((name, labels),) = samples(page([family], openmetrics=openmetrics), openmetrics=openmetrics)
    assert (name, labels) == ("qjoule_test", (("a", shown),))


@pytest.mark.parametrize("value", ['a"b', "a\nb", "a\\nb", "\\", "a\\"])
def test_values_that_are_not_made_safe_are_escaped(value: str) -> None:
    family = Family("qjoule_test", "gauge", "", samples=[Sample((("a", value),), "1")])
    (found,) = samples(page([family], openmetrics=True), openmetrics=True)
    assert dict(found[1]) == {"a": value}


def test_the_format_is_the_one_that_is_preferred() -> None:
    prometheus = (
        "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    )
    assert wanted(prometheus) == OPENMETRICS
    assert wanted(f"application/vnd.google.protobuf;{prometheus}") == PROTOBUF
    for accept in ("", "*/*", "text/plain, application/openmetrics-text;q=0.5", "rubbish;;,;q="):
        assert wanted(accept) == TEXT
    assert wanted("application/openmetrics-text;q=rubbish") == TEXT


def fields(content: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """The fields of a protobuf message (https://protobuf.dev/programming-guides/encoding)."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at, value = at + 1, value | (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(content):
        key = varint()
        match key & 7:
            case 0:
                yield key >> 3, varint()
            case 1:
                yield key >> 3, struct.unpack_from("<d", content, at)[0]
                at += 8
            case _:
                size = varint()
                yield key >> 3, content[at : at + size]
                at += size


def of(content: bytes, field: int) -> list[Any]:
    return [value for number, value in fields(content) if number == field]


def test_native_histograms_have_every_call() -> None:
    families = list(of_counters(counted(Limits(), intervals(20))))
    text = samples(page(families, openmetrics=False))
    # Each message is preceded by its length, as a field is.
    delimited = b"".join(b"\x0a" + one for one in _split(content(families, PROTOBUF)))
    found = {of(one, 1)[0].decode(): one for one in of(delimited, 1)}
    assert {"qjoule_node_joules_total", "qjoule_query_info"} <= found.keys()
    calls = 0
    for metric in of(found["qjoule_query_latency_seconds"], 4):
        (histogram,) = of(metric, 7)
        deltas = [
            value >> 1 if value % 2 == 0 else -(value + 1 >> 1) for value in of(histogram, 13)
        ]
        counts = list(accumulate(deltas))
        (count,) = of(histogram, 1)
        assert sum(counts) == count and of(histogram, 5) == [0]
        if count:
            (span,) = of(histogram, 12)
            # Bucket 20 begins at 1024 us, near 2**-10 s: the bucket that ends at 2**-9 s.
            assert of(span, 1) == [2 * 9 - 1] and of(span, 2) == [1]
        calls += count
    assert calls == total(text, "qjoule_query_latency_seconds_count") == 120
    joules = of(found["qjoule_node_joules_total"], 4)
    values = sorted(of(of(one, 3)[0], 1)[0] for one in joules)
    assert values == sorted(
        v for (name, _), v in text.items() if name == "qjoule_node_joules_total"
    )


def _split(content: bytes) -> Iterator[bytes]:
    """The messages of a page with their lengths."""
    at = 0
    while at < len(content):
        size, shift, begin = 0, 0, at
        while True:
            byte = content[at]
            at, size, shift = at + 1, size | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        at += size
        yield content[begin:at]


def intervals(windows: int, shapes: int = 3) -> list[tuple[Interval, float]]:
    rows = [query(shape, 1000, calls=shape) for shape in range(1, shapes + 1)]
    pieces = [window(n, rows, (n + 1) * 1000) for n in range(windows)]
    found = source(pieces, range(1, shapes + 1)).snapshots(Controls(0.5, totals=False))
    return [(interval_of(one.interval), one.elapsed_s) for one in found]


def counted(limits: Limits, found: list[tuple[Interval, float]]) -> Counters:
    counters = Counters(limits, 1e9)
    for one, now_s in found:
        counters.take(one, now_s, 1e9 + now_s)
    return counters


def test_histograms_are_cumulative_and_agree_with_their_counts() -> None:
    found = samples(page(of_counters(counted(Limits(), intervals(20))), openmetrics=False))
    name = "qjoule_query_latency_seconds"
    buckets = sorted(
        (float(dict(labels)["le"]), value)
        for (of, labels), value in found.items()
        if of == f"{name}_bucket" and dict(labels).get("fingerprint", "") != "other"
    )
    # Bucket 20 begins at 1024 us.
    assert all(value == 0 for edge, value in buckets if edge <= 1024e-6)
    assert all(value > 0 for edge, value in buckets if edge > 1024e-6)
    calls = total(found, "qjoule_query_calls_total")
    assert total(found, f"{name}_count") == calls == 20 * (1 + 2 + 3)
    assert total(found, f"{name}_bucket", le="+Inf") == calls
    assert total(found, f"{name}_sum") == pytest.approx(calls * 1.2e-3)


def test_edges_are_edges_of_the_kernels_buckets() -> None:
    assert max(EDGES) < LATENCY_BUCKETS
    assert [float(edge) for edge in EDGES_S] == [1e-6 * 2 ** (at / 2) for at in EDGES]


def test_ten_thousand_random_shapes_add_no_series() -> None:
    regular = counted(Limits(), intervals(20))
    before = len(samples(page(of_counters(regular), openmetrics=False)))
    one, now_s = intervals(20)[-1]
    shape, random = next((s, q) for s, q in one.queries.items() if q.named)
    for step in range(100):
        flood = {
            shape._replace(fingerprint=f"{step:08x}{n:08x}"): replace(random) for n in range(100)
        }
        regular.take(replace(one, queries={**one.queries, **flood}), now_s + step, 2e9)
    found = samples(page(of_counters(regular), openmetrics=False))
    assert len(found) <= before + 1, "only the counter of what was folded is new"
    assert total(found, "qjoule_folded_shapes_total") >= 10_000


def test_what_leaves_is_kept_in_the_sum() -> None:
    found = intervals(20)
    counters = counted(Limits(1, 1.0), found)
    one, now_s = found[-1]
    shape = next(s for s in counters.queries if s.fingerprint != "other")
    whole = sum(series.amounts.calls for series in counters.queries.values())
    calls = counters.queries[shape].amounts.calls
    others = {s: q for s, q in one.queries.items() if s != shape}
    more = sum(q.amounts.calls for q in others.values())
    for step in (10, 20):
        counters.take(replace(one, queries=others), now_s + step, 2e9)
    retired = shape._replace(fingerprint="retired")
    assert shape not in counters.queries
    assert counters.queries[retired].amounts.calls == calls
    assert sum(s.amounts.calls for s in counters.queries.values()) == whole + 2 * more


def test_ids_of_other_tools_are_labels_of_the_info_alone() -> None:
    found = intervals(20)
    counters = counted(Limits(), found)
    shape = next(s for s in counters.queries if s.fingerprint != "other")
    counters.queries[shape].ids = (
        OtherId("queryid", "-42", "pg_stat_statements"),
        OtherId("digest", None, "performance_schema", "not read"),
    )
    page_found = samples(page(of_counters(counters), openmetrics=False))
    with_ids = [key for key in page_found if "queryid" in dict(key[1])]
    assert [(name, dict(labels)["queryid"]) for name, labels in with_ids] == [
        ("qjoule_query_info", "-42")
    ]
    assert not any("digest" in dict(labels) for _, labels in page_found)


def test_a_tools_name_cannot_take_a_label_of_ours() -> None:
    assert label_name("Query ID") == "query_id"
    assert label_name("server") == "id"
