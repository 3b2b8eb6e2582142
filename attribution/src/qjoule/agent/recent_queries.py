# SPDX-License-Identifier: Apache-2.0
"""Shows queries that were drawn at random, for the program that sends them (`qjoule.push`).

A JSON document with the newest of them, each with a number: {"start": random id of the agent's run,
"queries": [...]}. It names users and clients, so it is shown only if configured.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from qjoule.metrics.shared import SnapshotBoard
from qjoule.trace.vocabulary import WAITS

MOST, KEPT_S = 1_000, 300.0


class RecentQueries:
    """`say`: logs a line."""

    def __init__(self, board: SnapshotBoard, say: Callable[[str], object]) -> None:
        self._board, self._say = board, say
        self._start = os.urandom(8).hex()
        self._last = 0
        self._queries: deque[dict[str, Any]] = deque(maxlen=MOST)
        self._show()

    def take(
        self, rows: Sequence[Mapping[str, Any]], grade: str, policy: str, wall_s: float
    ) -> None:
        """`rows`: of `qjoule.agent.minute.sample_rows`, of an interval that ended at `wall_s`.
        `grade`, `policy`: of its energy.
        """
        for row in rows:
            self._last += 1
            common = {"number": self._last, "grade": grade, "policy": policy}
            self._queries.append({**common, **dict(_query_fields(row))})
        old_us = (wall_s - KEPT_S) * 1e6
        recent = dropwhile(lambda query: query["time"] < old_us, self._queries)
        self._queries = deque(recent, maxlen=MOST)
        self._show()

    def _show(self) -> None:
        content = {"start": self._start, "last": self._last, "queries": list(self._queries)}
        encoded = json.dumps(content, separators=(",", ":")).encode()
        if not self._board.show(encoded, time.monotonic(), math.inf):
            self._say("the drawn queries do not fit their bound, and are not shown")


def _query_fields(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((name, of) for name, of in row.items() if of is not None and name not in WAITS)
    kinds = {name: name.removeprefix("wait_").removesuffix("_ns") for name in WAITS}
    yield "waits", {kind: row[name] for name, kind in kinds.items() if name in row}
