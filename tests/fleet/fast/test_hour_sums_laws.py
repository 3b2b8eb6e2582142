# SPDX-License-Identifier: Apache-2.0
"""An hour's rows are the sums of its minutes' rows: amounts to the nJ, errors by their rules."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from qjoule.fleet.schema import AMOUNTS, ERRORS, KEYS, ROWS
from qjoule.fleet.sums import of_hour, thinned

HOUR_S = 1_795_000_000 // 3600 * 3600

TEXTS = st.sampled_from([None, "", "a"])
ROW = st.fixed_dictionaries(
    {
        "minute": st.integers(0, 59).map(lambda number: (HOUR_S + 60 * number) * 1000),
        "seconds": st.integers(0, 60).map(float),
        **dict.fromkeys(KEYS[2:], st.none()),
        **dict.fromkeys(("grade", *KEYS[:2]), TEXTS),
        **dict.fromkeys(AMOUNTS, st.none() | st.integers(0, 1 << 55)),
        **dict.fromkeys(ERRORS, st.none() | st.floats(0, 2.0**59, width=32, allow_subnormal=False)),
        "latency": st.none() | st.lists(st.integers(0, 1 << 50), max_size=6),
    }
)


@given(st.lists(ROW, max_size=8))
def test_an_hour_is_the_sum_of_its_minutes(minutes: list[dict[str, Any]]) -> None:
    found = of_hour(pa.Table.from_pylist(minutes, ROWS), HOUR_S)
    assert found.schema.equals(ROWS)
    series: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in minutes:
        series[tuple(row[name] for name in KEYS)].append(row)
    sums = {tuple(row[name] for name in KEYS): row for row in found.to_pylist()}
    assert sums.keys() == series.keys() and len(found) == len(series)
    for key, rows in series.items():
        total = sums[key]
        assert total["minute"].timestamp() == HOUR_S
        for name in AMOUNTS:
            known = [row[name] for row in rows if row[name] is not None]
            assert total[name] == (sum(known) if known else None)
        for name in ERRORS:
            values = [row[name] for row in rows]
            if None in values:
                assert total[name] is None
            else:
                exact = sum(values)
                assert exact * (1 - 1e-12) <= total[name] <= exact * 1.008
        assert total["latency"] == added([row["latency"] for row in rows])


@given(st.lists(ROW, min_size=1, max_size=8))
def test_an_hours_time_is_that_of_all_its_minutes(minutes: list[dict[str, Any]]) -> None:
    """A series that did nothing in some minutes was traced in them all the same."""
    same = {"grade": "measured", "policy": "separate", "host_id": "a"}
    each = {row["minute"]: row | same for row in minutes}
    nodes = [row | {"kind": "node", "name": "package"} for row in each.values()]
    node_key = dict.fromkeys(("server", "database", "fingerprint"))
    nodes = [row | node_key for row in nodes]
    others = [row | {"kind": "queries"} for row in each.values() if row["minute"] % 120_000]
    found = of_hour(pa.Table.from_pylist(nodes + others, ROWS), HOUR_S)
    seconds = sum(row["seconds"] for row in nodes)
    assert set(found["seconds"].to_pylist()) == {seconds}


@given(st.lists(ROW, max_size=8), st.integers(0, 3))
def test_fewer_rows_have_the_same_sums(minutes: list[dict[str, Any]], most: int) -> None:
    same = {"grade": "measured", "policy": "separate", "host_id": "a"}
    named = [row | same | {"fingerprint": row["server"]} for row in minutes]
    named = [row | {"kind": "queries" if row["kind"] else "node"} for row in named]
    rows = pa.Table.from_pylist(named, ROWS)
    fewer = thinned(rows, most)
    assert fewer.schema.equals(ROWS) and len(fewer) <= len(rows)
    for span_s in (600, 3600):
        for name in AMOUNTS:
            assert sums(fewer, name, span_s) == sums(rows, name, span_s)
    queries = [row for row in fewer.to_pylist() if row["kind"] == "queries"]
    assert len({row["fingerprint"] for row in queries if row["minute"].minute % 10}) <= most


def sums(rows: pa.Table, name: str, span_s: int) -> dict[tuple[Any, ...], int]:
    found: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in rows.to_pylist():
        span = row["minute"].timestamp() // span_s
        found[(row["kind"], row["fingerprint"], span)] += row[name] or 0
    return found


def added(lists: list[list[int] | None]) -> list[int] | None:
    known = [one for one in lists if one is not None]
    if not known:
        return None
    longest = max(map(len, known))
    return [sum(one[at] for one in known if at < len(one)) for at in range(longest)]
