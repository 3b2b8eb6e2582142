# SPDX-License-Identifier: Apache-2.0
"""Pairs of queries over Twitter-like data: each in a worse and a better form.

The pairs are those of Mahajan, Query Optimization and Energy Efficiency of MySQL, MongoDB and
Cassandra (master's thesis, Texas State University, 2016); a pair's `source` names its table there.
The module of each server in `stores` has its `TWITTER`, a `Server`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from qjoule.api import QjouleError
from qjoule_studies.servers import STORES, module_for, products_in
from qjoule_studies.twitter.data import Sizes
from qjoule_studies.workload import Target

FORMS = ("worse", "better")
NOT_IN_THESIS = "not in the thesis"

DATABASE = "qjoule_twitter"  #: unless the target names one
MARK = "qjoule_twitter_mark"  #: a table or key that says which data are there
LOADING = "loading"  #: its text while they are not complete
#: Servers that have pairs.
FLAVOURS = frozenset(products_in(STORES))

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
        """Restores the data to their state before any run; quick if they are unchanged."""

    def open(self, pair: str, form: str, seed: int) -> None:
        """Prepares calls of this form; the data must be ready."""

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


class ServerOfCalls(ABC):
    """A `Server` whose pairs are calls of its driver."""

    _client: Any
    _call: Call

    @property
    @abstractmethod
    def pairs(self) -> Mapping[str, Calls]:
        """By name."""

    def open(self, pair: str, form: str, seed: int) -> None:  # noqa: ARG002
        self._call = self.pairs[pair].calls[FORMS.index(form)]

    def call(self, number: int) -> Rows:
        return self._call(number)

    def close(self) -> None:
        self._client.close()


def open_server(target: Target, sizes: Sizes) -> Server:
    """Raises QjouleError: the driver is not installed, or the server does not answer."""
    try:
        server_class = module_for(STORES, target.flavour).TWITTER
    except ModuleNotFoundError as error:
        raise QjouleError(
            f"{error.name} is missing: pip install 'qjoule-studies[bench]'"
        ) from error
    try:
        server: Server = server_class(target, sizes)
    except (*server_class.errors, OSError) as error:
        raise QjouleError(
            f"{target.flavour} at {target.host}:{target.port} does not answer: {error}"
        ) from error
    return server


def mark_of(sizes: Sizes, seed: int) -> str:
    """The mark's content if the data are complete."""
    return f"{sizes.tweets} tweets, seed {seed}"
