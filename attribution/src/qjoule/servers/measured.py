# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the files of measured figures: CSV with a comment, a row per figure.

`measured_costs.csv` has the measured cost of a query on each attach mode (`make
bench-attach-modes`), `measured_overhead.csv` the measured cost of tracing whole loads (`make
bench-overhead BENCH_ARGS=--save`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from qjoule.errors import QjouleError

_FOLDER = Path(__file__).parent


class Figure(Protocol):
    """A row: a dataclass with fields of `int`, `int | None` and `str`."""

    @property
    def server(self) -> str:
        """A flavour of the registry."""

    @property
    def key(self) -> Hashable:
        """Identifies the figure; keys can be sorted."""


F = TypeVar("F", bound=Figure)


@dataclass(frozen=True)
class FigureFile(Generic[F]):
    """A file of figures: its `name`, `about` (its first line), and whether words may be empty."""

    kind: type[F]
    name: str
    about: str
    empty_words: bool = False

    def load(self) -> dict[Any, F]:
        """Returns the figures by their keys, in order.

        Raises:
            QjouleError: the file does not have this format.
        """
        return dict(sorted(self.read((_FOLDER / self.name).read_text(encoding="utf-8")).items()))

    def save(self, figures: Iterable[F], *, alone: bool = False) -> None:
        """Writes the figures to the file, and keeps its other figures unless `alone`.

        Raises:
            QjouleError: the file does not have this format.
        """
        before = {} if alone else self.load()
        every = before | {figure.key: figure for figure in figures}
        (_FOLDER / self.name).write_text(self.write(every.values()), encoding="utf-8")

    def read(self, text: str) -> dict[Any, F]:
        """Parses the text of a file; returns the figures by their keys.

        Raises:
            QjouleError: the text does not have this format.
        """
        reader = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
        if reader.fieldnames != self._columns:
            raise QjouleError(f"{self.name}: its columns are not {', '.join(self._columns)}")
        figures = [self._figure(row, number) for number, row in enumerate(reader, 1)]
        return {figure.key: figure for figure in figures}

    def write(self, figures: Iterable[F]) -> str:
        """Returns the text of a file, in a fixed order."""
        text = io.StringIO()
        text.write(f"# {self.about}\n")
        writer = csv.DictWriter(text, self._columns, lineterminator="\n")
        writer.writeheader()
        in_order: list[Any] = sorted(figures, key=lambda figure: figure.key)
        writer.writerows(asdict(figure) for figure in in_order)
        return text.getvalue()

    @property
    def _columns(self) -> list[str]:
        return [field.name for field in self._fields()]

    def _fields(self) -> tuple[Any, ...]:
        kind: Any = self.kind
        return fields(kind)

    def _figure(self, row: dict[str, str | None], number: int) -> F:
        values: dict[str, Any] = dict(row)
        try:
            for field in self._fields():
                text = row[field.name]
                if field.type == "int":
                    values[field.name] = int(text or "")
                elif field.type == "int | None" and text is not None:
                    values[field.name] = int(text) if text else None
        except ValueError as error:
            raise QjouleError(f"{self.name}, row {number}: {error}") from None
        texts = [row[field.name] for field in self._fields() if field.type == "str"]
        complete = None not in row and None not in row.values()
        if not complete or not (self.empty_words or all(texts)):
            raise QjouleError(f"{self.name}, row {number}: not as many values as columns")
        return self.kind(**values)


COSTS_FILE = "measured_costs.csv"


@dataclass(frozen=True)
class MeasuredCost:
    """CPU time that tracing adds to the server per query: medians and their 95 % intervals.

    `cost`: cost of the attach mode, compared with a recording that leaves the server out. `whole`:
    cost of tracing, compared with no recording. `programs`: the part of the cost that the kernel
    counts for the attach mode's BPF programs themselves, without the overhead of invoking them. For
    a server whose queries take a thousand times as long, only this part can be measured.
    """

    server: str  #: a flavour of the registry
    version: str
    attach_mode: str  #: as `contract.AttachMode`, in lower case
    cost_ns: int
    low_ns: int
    high_ns: int
    whole_ns: int
    whole_low_ns: int
    whole_high_ns: int
    query: str  #: the query that was run
    cpu: str
    kernel: str
    date: str  #: ISO 8601
    programs_ns: int | None = None  #: None: not measured

    @property
    def key(self) -> tuple[str, str]:
        return self.server, self.attach_mode


COSTS = FigureFile(
    MeasuredCost,
    COSTS_FILE,
    "CPU time that tracing adds to a server's query, by `make bench-attach-modes`.",
)
#: Costs by (server, attach mode). See `FigureFile` for errors.
known_costs, save_costs = COSTS.load, COSTS.save


OVERHEAD_FILE = "measured_overhead.csv"

#: Identifies a figure: server, workload, mode, attach mode, options, load, figure.
Key = tuple[str, str, str, str, str, str, str]


@dataclass(frozen=True)
class MeasuredOverhead:
    """One figure: its median with a 95 % interval, and the place, time and commit.

    `load`: saturated, fixed (60 % of that rate), or inside (by the kernel's accounts of BPF
    programs, at the fixed rate). `figure`: its unit is in its name. CPU times are per query.
    """

    server: str  #: a flavour of the registry
    version: str
    workload: str
    mode: str  #: record or top
    attach_mode: str
    options: str  #: further options of the command; empty: none
    load: str
    figure: str
    median: int
    low: int
    high: int
    rounds: int
    queries_per_s: int  #: while traced; 0: not measured
    load_average: str  #: the machine's, including the load
    cpu: str
    kernel: str
    date: str  #: ISO 8601
    tree: str  #: the commit; `+`: with changes

    @property
    def key(self) -> Key:
        return (
            *(self.server, self.workload, self.mode, self.attach_mode),
            *(self.options, self.load, self.figure),
        )


_OVERHEADS = FigureFile(
    MeasuredOverhead,
    OVERHEAD_FILE,
    "What tracing costs, by `make bench-overhead BENCH_ARGS=--save`.",
    empty_words=True,
)
#: Figures by their keys. See `FigureFile` for errors.
known_overheads, save_overheads = _OVERHEADS.load, _OVERHEADS.save
