# SPDX-License-Identifier: Apache-2.0
"""Answers a question about a fleet from the parts that a catalog selected.

The parts may be divided among workers: each makes cells (`qjoule_fleet.questions`) from its parts,
and one process sums them. The division does not change integers, and changes intervals only by
rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from qjoule.api.rollups import hour_of
from qjoule_fleet import questions
from qjoule_fleet.catalog import Catalog, Selection
from qjoule_fleet.files import Files
from qjoule_fleet.footers import Checked
from qjoule_fleet.questions import CLASS, By
from qjoule_fleet.relations import Limits, Session, Source
from qjoule_fleet.times import Range, iso
from qjoule_fleet.views import text


@dataclass(frozen=True)
class Question:
    """`limit` None: all groups. `latency`: also latency histograms. `absolute`: the rows' intervals
    include the error of the total."""

    by: By
    sort: str = "energy"
    limit: int | None = 20
    latency: bool = True
    absolute: bool = False


@dataclass(frozen=True)
class Answer:
    """Tables of groups, their latencies, totals by class and kind, and shapes' texts.
    `count`: number of all groups. `cells`: sums by host and shape, if requested."""

    groups: pa.Table
    latencies: pa.Table
    totals: pa.Table
    shapes: pa.Table
    count: int
    cells: pa.Table | None = None


@dataclass(frozen=True)
class Parts:
    """The parts that answer a question. `tags`: only if it groups by a tag."""

    sums: Selection
    tags: Selection | None = None

    @property
    def sources(self) -> list[Source]:
        sources = [
            Source("span_parts", self.sums.parts, self.sums.range),
            Source("shape_parts", self.sums.slow["shapes"]),
            Source("server_parts", self.sums.slow["servers"]),
        ]
        if self.tags is not None:
            sources.append(Source("tag_parts", self.tags.hourly, self.tags.range))
        return sources

    def divided(self, count: int) -> list[Parts]:
        """Returns at most `count` divisions of similar size in bytes. A host's hours stay together,
        so that there are few cells."""
        every = [(checked, False) for checked in self.sums.parts]
        every += [(checked, True) for checked in (self.tags.hourly if self.tags else ())]
        every.sort(key=lambda pair: (pair[0].part.host, pair[0].part.host_id, pair[0].path))
        size = sum(checked.size for checked, _ in every)
        divisions: list[list[tuple[Checked, bool]]] = [[] for _ in range(max(1, count))]
        before = 0
        for pair in every:
            divisions[min(before * len(divisions) // max(size, 1), len(divisions) - 1)].append(pair)
            before += pair[0].size
        return [self._of(division) for division in divisions if division]

    def _of(self, pairs: Sequence[tuple[Checked, bool]]) -> Parts:
        hosts = {checked.part.host for checked, _ in pairs}
        slow = {
            "shapes": list[Checked](),
            "servers": [
                server for server in self.sums.slow["servers"] if server.part.host in hosts
            ],
        }
        own = replace(
            self.sums,
            hourly=[],
            edges=[checked for checked, tag in pairs if not tag],
            slow=slow,
            refused=[],
        )
        tags = self.tags and replace(
            self.tags, hourly=[checked for checked, tag in pairs if tag], slow={}, refused=[]
        )
        return Parts(own, tags)


class Engine(Protocol):
    """Makes the cells, possibly on several workers."""

    def each(
        self, task: Callable[[Parts], dict[str, pa.Table]], parts: Parts
    ) -> Iterable[dict[str, pa.Table]] | None:
        """Yields the task's results for divisions of the parts; None: this process does it all."""

    def limits(self, limits: Limits) -> Limits:
        """Returns the limits of one worker."""


def select(catalog: Catalog, time_range: Range, by: By) -> Parts:
    """Returns the parts that a question needs."""
    sums = catalog.sums(time_range)
    if by.release and (changed := _changes(catalog.files, sums)):
        sums = catalog.sums(time_range, by_minute=changed)
    return Parts(sums, catalog.tags(time_range) if by.tag else None)


def _changes(files: Files, selection: Selection) -> set[tuple[str, int]]:
    """Returns hosts and hours in which the release of a server changed."""
    with Session(files, Limits(memory_mb=200, threads=1)) as session:
        session.define(selection, [Source("server_parts", selection.slow["servers"])])
        begin, end = iso(hour_of(selection.range.begin_s)), iso(selection.range.end_s)
        rows = session.table(
            "select host_id, epoch(begins) as begins from servers "
            f"where begins >= timestamptz {text(begin)} and begins < timestamptz {text(end)}"
        ).to_pylist()
    return {(row["host_id"], hour_of(row["begins"])) for row in rows}


def _texts(by: By, groups: pa.Table) -> str:
    at = by.keys.index("fingerprint") if "fingerprint" in by.keys else None
    wanted = [] if at is None else groups[f"key{at}"].unique().to_pylist()
    listed = ", ".join(map(text, wanted)) or "null"
    return f"select fingerprint, text, texts, ids from shapes where fingerprint in ({listed})"


@dataclass(frozen=True)
class _Cells:
    by: By

    def prepare(self, session: Session) -> None:
        """Does nothing: the views suffice."""

    def selects(self) -> dict[str, str]:
        return {"cells": questions.cells(self.by), "owned": questions.owned()}


@dataclass(frozen=True)
class _Latencies:
    by: By
    wanted: pa.Table

    def prepare(self, session: Session) -> None:
        session.put("wanted", self.wanted)

    def selects(self) -> dict[str, str]:
        return {"latencies": questions.latencies(self.by)}


_MERGED: dict[str, Callable[[By, str], str]] = {
    "cells": questions.merged,
    "owned": lambda _, relation: questions.merged_owned(relation),
    "latencies": questions.merged_latencies,
}


@dataclass(frozen=True)
class Work:
    """A worker's task for its division; it can be sent to another process."""

    files: Files
    limits: Limits
    task: _Cells | _Latencies

    def __call__(self, parts: Parts) -> dict[str, pa.Table]:
        with Session(self.files, self.limits) as session:
            session.define(parts.sums, parts.sources)
            session.hold(parts.sources)
            self.task.prepare(session)
            return {name: session.table(sql) for name, sql in self.task.selects().items()}


@dataclass(frozen=True)
class Reader:
    """A dataset, the limits for reading it, and the engine."""

    files: Files
    limits: Limits
    engine: Engine

    def answer(self, parts: Parts, question: Question, *, with_cells: bool = False) -> Answer:
        """Has the engine make cells, and computes the answer from them with DuckDB in this
        process."""
        by = question.by
        with Session(self.files, self.limits) as session:
            session.define(parts.sums, parts.sources)
            self._fill(session, parts, _Cells(by))
            groups = session.table(questions.top(by, question.sort, question.limit))
            names = [*by.columns, *CLASS]
            count = session.table(
                f"select count(*) as n from (select distinct {', '.join(names)} from cells)"
            )
            latencies = groups.select(names)
            if question.latency and groups.num_rows:
                session.put("wanted", groups.select(names))
                self._fill(session, parts, _Latencies(by, groups.select(names)))
                latencies = session.table("select * from latencies")
            return Answer(
                groups,
                latencies,
                session.table(questions.totals()),
                session.table(_texts(by, groups)),
                count["n"][0].as_py(),
                session.table("select * from cells") if with_cells else None,
            )

    def _fill(self, session: Session, parts: Parts, task: _Cells | _Latencies) -> None:
        """Makes the task's tables in `session`."""
        work = Work(self.files, self.engine.limits(self.limits), task)
        results = self.engine.each(work, parts)
        if results is None:
            session.hold(parts.sources)
            for name, statement in task.selects().items():
                session.keep(name, statement)
            return
        tables = set[str]()
        for result in results:
            for name, table in result.items():
                session.put("division", table)
                both = f"(select * from {name} union all select * from division)"
                relation = both if name in tables else "division"
                session.keep(name, _MERGED[name](task.by, relation))
                tables.add(name)


class InProcess:
    """An engine that does everything in this process, with one DuckDB."""

    def each(
        self, task: Callable[[Parts], dict[str, pa.Table]], parts: Parts
    ) -> Iterable[dict[str, pa.Table]] | None:
        del task, parts
        return None

    def limits(self, limits: Limits) -> Limits:
        return limits
