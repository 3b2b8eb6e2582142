# SPDX-License-Identifier: Apache-2.0
"""Pairs of servers that have no SQL: each form is a function that makes one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qjoule_studies.twitter.pair import Rows

Call = Callable[[int], Rows]  #: the query with the literals of its n-th call, and its rows


@dataclass(frozen=True)
class Calls:
    """Two forms of one query, the worse one first; see `pair.PairFacts`.

    `uses` says which copy of the data each form is about.
    """

    name: str
    title: str
    source: str
    labels: tuple[str, str]
    calls: tuple[Call, Call]
    uses: tuple[str, str]
    same_rows: bool = True
    most_calls: int | None = None
