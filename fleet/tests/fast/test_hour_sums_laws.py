# SPDX-License-Identifier: Apache-2.0
"""An hour's rows are the sums of its minutes' rows: amounts to the nJ, errors by their rules."""

from __future__ import annotations

from collections import defaultdict
from itertools import zip_longest
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from qjoule.agent.hourly_tables import AMOUNTS, ERRORS, KEYS, ROWS, of_hour

HOUR_S = 1_795_000_000 // 3600 * 3600
CLASS = {"grade": "measured", "policy": "separate", "host_id": "a"}

TEXTS = st.sampled_from([None, "", "a"])
ROW = st.fixed_dictionaries(
    {
        "minute": st.integers(0, 59).map(lambda number: (HOUR_S + 60 * number) * 1000),
        "seconds": st.integers(0, 60).map(float),
        **dict.fromkeys(KEYS[2:], st.none()),
        **dict.fromkeys(("grade", *KEYS[:2]), TEXTS),
        **dict.fromkeys(AMOUNTS, st.none() | st.integers(0, 1 << 55)),
        **dict.fromkeys(ERRORS, st.none() | st.floats(0, 2.0**59, width=32, allow_subnormal=False)),
        "latency": st.none() | st.lists(st.integers(0, 1 << 50), max_size=4),
    }
)
MINUTES = st.lists(ROW, max_size=6)


@given(MINUTES)
def test_an_hour_is_the_sum_of_its_minutes(minutes: list[dict[str, Any]]) -> None:
    hour = of_hour(pa.Table.from_pylist(minutes, ROWS), HOUR_S)
    assert hour.schema.equals(ROWS)
    series: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in minutes:
        series[tuple(row[name] for name in KEYS)].append(row)
    sums = {tuple(row[name] for name in KEYS): row for row in hour.to_pylist()}
    assert sums.keys() == series.keys() and len(hour) == len(series)
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
                assert sum(values) * (1 - 1e-12) <= total[name] <= sum(values) * 1.008
        lists = [row["latency"] for row in rows if row["latency"] is not None]
        added = [sum(one) for one in zip_longest(*lists, fillvalue=0)]
        assert total["latency"] == (added if lists else None)


@given(MINUTES.filter(bool))
def test_an_hours_time_is_that_of_all_its_minutes(minutes: list[dict[str, Any]]) -> None:
    """A series that did nothing in some minutes was traced in them all the same."""
    each = {row["minute"]: row | CLASS for row in minutes}
    node = {"kind": "node", "name": "package"} | dict.fromkeys(("server", "database"))
    nodes = [row | node | {"fingerprint": None} for row in each.values()]
    others = [row | {"kind": "queries"} for row in each.values() if row["minute"] % 120_000]
    hour = of_hour(pa.Table.from_pylist(nodes + others, ROWS), HOUR_S)
    assert set(hour["seconds"].to_pylist()) == {sum(row["seconds"] for row in nodes)}
