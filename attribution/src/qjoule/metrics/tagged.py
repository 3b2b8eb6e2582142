# SPDX-License-Identifier: Apache-2.0
"""Counters of queries by the value of one tag that applications send, such as their tenant.

Clients choose the values, so the series of each server are bounded, as those of statements are. The
counters begin at 0 with each process of the agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from qjoule.metrics.counters import RETIRED, Admission, Limits
from qjoule.metrics.exposition import Family, Sample, decimal, seconds
from qjoule.metrics.interval import OTHER, energies_of, safe
from qjoule.model.result import Attribution


class TagValue(NamedTuple):
    """Queries on one server with one value of the tag."""

    server: str
    value: str


@dataclass(slots=True)
class _Series:
    created_s: float
    energy_nj: int = 0
    cpu_ns: int = 0
    calls: int = 0

    def add(self, other: _Series) -> None:
        self.energy_nj += other.energy_nj
        self.cpu_ns += other.cpu_ns
        self.calls += other.calls


@dataclass
class TagCounters:
    """Sums by the values of the tag `key`. `limits`: values of each server with a series, and how
    long one keeps it unseen."""

    key: str
    limits: Limits
    _series: dict[TagValue, _Series] = field(default_factory=dict)
    _admitted: dict[str, Admission[str]] = field(default_factory=dict)  #: values, by server

    def take(self, result: Attribution, now_s: float, wall_s: float) -> None:
        """Adds an interval whose rows are by `tag:KEY`. `now_s`: the stream's time, `wall_s`: Unix
        time, for new series."""
        sums = self._sums(result, wall_s)
        by_server: dict[str, dict[str, int]] = {server: {} for server in self._admitted}
        for tag_value, spent in sums.items():
            by_server.setdefault(tag_value.server, {})[tag_value.value] = spent.energy_nj
        for server, weights in by_server.items():
            self._admit(server, weights, now_s, wall_s)
        for tag_value, spent in sums.items():
            has_series = tag_value.value in self._values_of(tag_value.server)
            self._series_of(
                tag_value if has_series else tag_value._replace(value=OTHER), wall_s
            ).add(spent)

    def set_limits(self, limits: Limits) -> None:
        """Applies from the next interval on."""
        self.limits = limits
        for values in self._admitted.values():
            values.limit, values.lifetime_s = limits.shapes, limits.lifetime_s

    def families(self) -> Iterator[Family]:
        series_of = [
            (
                (("server", tag_value.server), ("key", self.key), ("value", tag_value.value)),
                series,
                seconds(series.created_s),
            )
            for tag_value, series in sorted(self._series.items())
        ]
        yield Family(
            "qjoule_tag_joules",
            "counter",
            "Energy of queries by the value of a tag that applications send.",
            "joules",
            [
                Sample(labels, decimal(series.energy_nj), created)
                for labels, series, created in series_of
            ],
        )
        yield Family(
            "qjoule_tag_cpu_seconds",
            "counter",
            "CPU time of queries by the value of a tag.",
            "seconds",
            [
                Sample(labels, decimal(series.cpu_ns), created)
                for labels, series, created in series_of
            ],
        )
        yield Family(
            "qjoule_tag_calls",
            "counter",
            "Executions by the value of a tag.",
            samples=[
                Sample(labels, str(series.calls), created) for labels, series, created in series_of
            ],
        )

    def _sums(self, result: Attribution, wall_s: float) -> dict[TagValue, _Series]:
        sums: dict[TagValue, _Series] = {}
        rows, energy_nj, beyond_nj = energies_of(result)
        for row, nj in zip(rows, energy_nj, strict=True):
            if row.kind == "queries":
                tagged = TagValue(safe(row.server), safe(row.keys.get(f"tag:{self.key}", OTHER)))
                series = sums.setdefault(tagged, _Series(wall_s))
                series.add(_Series(wall_s, nj, row.cpu_ns, row.calls))
        if beyond_nj:
            sums.setdefault(TagValue("", OTHER), _Series(wall_s)).energy_nj += beyond_nj
        return sums

    def _admit(self, server: str, weights: dict[str, int], now_s: float, wall_s: float) -> None:
        weights.pop(OTHER, None)
        evicted: Sequence[str] = self._values_of(server).admit(weights, now_s)
        for value in evicted:
            series = self._series.pop(TagValue(server, value), None)
            if series is not None:
                self._series_of(TagValue(server, RETIRED), wall_s).add(series)

    def _values_of(self, server: str) -> Admission[str]:
        if server not in self._admitted:
            self._admitted[server] = Admission(self.limits.shapes, self.limits.lifetime_s)
        return self._admitted[server]

    def _series_of(self, tagged: TagValue, wall_s: float) -> _Series:
        return self._series.setdefault(tagged, _Series(wall_s))
