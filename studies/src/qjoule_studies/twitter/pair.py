# SPDX-License-Identifier: Apache-2.0
"""What a pair is on every server, what runs it, and the pairs of servers that have no SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

FORMS = ("worse", "better")
NOT_IN_THESIS = "not in the thesis"

Rows = Sequence[Any]


class PairFacts(Protocol):
    """Facts that every pair has.

    Attributes:
        name: for plans.
        title: for people.
        source: table of the thesis, or what it is carried over from.
        labels: of the worse and the better form.
        same_rows: whether both forms give the same rows, in whichever order.
        most_calls: limit for each form if calls use something up; else None.
    """

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def labels(self) -> tuple[str, str]: ...

    @property
    def same_rows(self) -> bool: ...

    @property
    def most_calls(self) -> int | None: ...


class Server(Protocol):
    """A connection to a server with its pairs."""

    errors: tuple[type[Exception], ...]

    @property
    def pairs(self) -> Mapping[str, PairFacts]:
        """By name."""

    def prepare(self, pair: str, form: str, seed: int) -> None:
        """Data as it is before any run. Quick if it is there."""

    def open(self, pair: str, form: str, seed: int) -> None:
        """Makes ready for calls of this form, on data that are prepared."""

    def call(self, number: int) -> Rows:
        """The query once, with the literals of its `number`th call, and all of its rows."""

    def close(self) -> None: ...


Call = Callable[[int], Rows]  #: the query with the literals of its n-th call, and its rows


@dataclass(frozen=True)
class Calls:
    """Two forms of one query, the worse one first; see `PairFacts`.

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
