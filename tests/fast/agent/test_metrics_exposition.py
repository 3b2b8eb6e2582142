# SPDX-License-Identifier: Apache-2.0
"""Pages hold whatever clients put into names, and both of Prometheus's parsers read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

import pytest

from metrics_pages import field, fields, samples, snapshots, total
from qjoule.metrics.collected import of_counters
from qjoule.metrics.counters import Counters, Limits
from qjoule.metrics.exposition import OPENMETRICS, PROTOBUF, TEXT, content, page, wanted
from qjoule.metrics.families import Family, Sample
from qjoule.metrics.interval import Interval, interval_of, safe

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
    assert wanted(prometheus) == OPENMETRICS
    assert wanted(f"application/vnd.google.protobuf;{prometheus}") == PROTOBUF
    for accept in ("", "text/plain, application/openmetrics-text;q=0.5", "rubbish;;,;q="):
        assert wanted(accept) == TEXT


def intervals() -> list[tuple[Interval, float]]:
    return [(interval_of(one.interval), one.elapsed_s) for one in snapshots(20)]


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
    families = list(of_counters(counted()))
    text = samples(page(families, openmetrics=False))
    messages = {field(one, 1)[0].decode(): one for one in delimited(content(families, PROTOBUF))}
    assert {"qjoule_node_joules_total", "qjoule_query_info"} <= messages.keys()
    calls = 0
    for metric in field(messages["qjoule_query_latency_seconds"], 4):
        (histogram,) = field(metric, 7)
        zigzag = field(histogram, 13)
        deltas = [one >> 1 if one % 2 == 0 else -(one + 1 >> 1) for one in zigzag]
        (count,) = field(histogram, 1)
        assert sum(accumulate(deltas)) == count and field(histogram, 5) == [0]
        if count:
            (span,) = field(histogram, 12)
            # Bucket 20 begins at 1024 us, near 2**-10 s: the bucket that ends at 2**-9 s.
            assert field(span, 1) == [2 * 9 - 1] and field(span, 2) == [1]
        calls += count
    assert calls == total(text, "qjoule_query_latency_seconds_count") == 120
    joules = field(messages["qjoule_node_joules_total"], 4)
    assert sorted(field(field(one, 3)[0], 1)[0] for one in joules) == sorted(
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
