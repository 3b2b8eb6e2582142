# SPDX-License-Identifier: Apache-2.0
"""Exemplars of the latency histogram: for each bucket, the newest drawn query that has a trace.

https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md#exemplars
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qjoule.metrics.exposition import Exemplar, Family, Sample, decimal, seconds

FAMILY = "qjoule_query_latency_seconds"
KEPT_S = 600.0
MOST = 10_000
_Key = tuple[str, str, int]  #: server, fingerprint, bucket


class Exemplars:
    """Takes drawn queries (`qjoule.agent.minute.sample_rows`), and adds them to a page's family.
    Series with a database get none; the agent has no such series.
    """

    def __init__(self) -> None:
        self._newest: dict[_Key, tuple[float, Exemplar]] = {}

    def take(self, rows: Iterable[Mapping[str, Any]], wall_s: float) -> None:
        """`wall_s`: the Unix time."""
        for row in rows:
            if row.get("trace") and row["latency_ns"] >= 0:
                unix_s = row["time"] / 1e6
                value = decimal(row["latency_ns"])
                exemplar = Exemplar(row["trace"], row["span"], value, seconds(unix_s))
                key = row["server"], row["fingerprint"], exemplar.bucket
                self._newest.pop(key, None)  # the newest are the last
                self._newest[key] = unix_s, exemplar
        for key in [key for key, (sent_s, _) in self._newest.items() if sent_s < wall_s - KEPT_S]:
            del self._newest[key]
        while len(self._newest) > MOST:
            del self._newest[next(iter(self._newest))]

    def with_exemplars(self, families: Iterable[Family]) -> Iterator[Family]:
        """The families, the histogram with exemplars."""
        of_statement: dict[tuple[str, str], list[Exemplar]] = {}
        for (server, fingerprint, _), (_, exemplar) in self._newest.items():
            of_statement.setdefault((server, fingerprint), []).append(exemplar)
        for family in families:
            if family.name == FAMILY and of_statement:
                samples = [_attach(sample, of_statement) for sample in family.samples]
                yield replace(family, samples=samples)
            else:
                yield family


def _attach(sample: Sample, of_statement: Mapping[tuple[str, str], Sequence[Exemplar]]) -> Sample:
    labels = dict(sample.labels)
    exemplars = of_statement.get((labels.get("server", ""), labels.get("fingerprint", "")), ())
    return sample if labels.get("database") else replace(sample, exemplars=tuple(exemplars))
