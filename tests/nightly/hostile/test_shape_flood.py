# SPDX-License-Identifier: Apache-2.0
"""A SQL user who always sends new shapes: `qjoule top` stays small, and its figures add up."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest

from qjoule.live.recent import REMEMBERED, SPARE
from qjoule.model.labels import FORGOTTEN_SHAPES
from servers.process import DatabaseServer
from tracing.live_top import live_top

pytestmark = [pytest.mark.root, pytest.mark.server]

FLOOD = 12_000
STEADY = 200
#: Maximum rows of one interval: what is remembered, and some that stand for several shapes.
MOST_ROWS = REMEMBERED + SPARE + 8


def test_ever_new_shapes_leave_top_small(mariadb: DatabaseServer) -> None:
    with (
        mariadb.connect() as connection,
        live_top("--energy", "none", "--pid", str(mariadb.pid)) as top,
    ):
        cursor = connection.cursor()
        for number in range(FLOOD):
            cursor.execute(f"select 1 as column_{word(number)}")
            if number % (FLOOD // STEADY) == 0:
                cursor.execute("select 'steady' as steady")
        top.wait_for(2)
        cursor.execute("select 2 as the_end")
        snapshots = top.finish(lambda row: "the_end" in row["shape"])
    intervals = [snapshot["interval"]["rows"] for snapshot in snapshots]
    assert max(map(len, intervals)) <= MOST_ROWS
    assert len(intervals[-1]) <= 8, "idle shapes take no row"
    calls: Counter[str] = Counter()
    for row in chain(*intervals):
        calls[row["shape"].lower()] += row["calls"]
    assert calls["select ? as steady"] == STEADY
    assert calls[FORGOTTEN_SHAPES] > 0
    # Some texts may be lost: those calls are in rows that are marked so.
    assert calls.total() == FLOOD + STEADY + 1, "each call once"


def word(number: int) -> str:
    """A separate name without digits, which might be taken for literals."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))
