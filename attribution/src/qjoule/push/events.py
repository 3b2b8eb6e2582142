# SPDX-License-Identifier: Apache-2.0
"""The statements with the most energy between two pages, as events `db.server.top_query` in OTLP.

OpenTelemetry's collector has such events of MySQL and PostgreSQL (opentelemetry-collector-contrib,
documentation.md of mysqlreceiver and postgresqlreceiver). Figures that the collector sends, too,
also get its attributes' names, so its dashboards work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from qjoule import __version__
from qjoule.metrics.counters import RETIRED
from qjoule.metrics.exposition import Family
from qjoule.push.otlp import QUERIES, TIMEOUT_S, About, quiet_session, resource
from qjoule.servers.decoding import decoding_of_flavour
from qjoule.servers.registered import system_name

EVENT = "db.server.top_query"
MOST_EVENTS = 200  #: of a page, as the receivers have by default
_ENERGY, _CPU = "qjoule.query.energy", "qjoule.query.cpu.time"
_COUNTS = ("qjoule.query.calls", "qjoule.query.rows", "qjoule.query.errors")

Key = tuple[str, str, str]  #: server, database, fingerprint
Sums = dict[Key, dict[str, Decimal]]  #: by attribute


class TopQueries:
    """Sends what was added since the last page of which the events were taken."""

    def __init__(self, host: str, about: Callable[[Sequence[Family]], About]) -> None:
        from opentelemetry.exporter.otlp.proto.http import _log_exporter  # noqa: PLC0415

        self._exporter = _log_exporter.OTLPLogExporter(timeout=TIMEOUT_S, session=quiet_session())
        self._host, self._about = host, about
        self._began = ""  #: when the counters were 0; empty: no page yet
        self._sums: Sums = {}

    def send(self, families: Sequence[Family], unix_s: float) -> bool:
        """True if the events were taken, or there are none."""
        events = self.events(families)
        try:
            if events and self._exporter.export(self._records(events, unix_s)).name != "SUCCESS":
                return False
        except Exception:  # of requests, urllib3 or the SDK: none may end the process
            return False
        self._began, self._sums = _began(families), _sums(families)
        return True

    def events(self, families: Sequence[Family]) -> list[dict[str, Any]]:
        """Attributes of each event, by energy, then CPU time. None for the first page, or if the
        counters began anew: the increase is unknown then.
        """
        if not self._began or self._began != _began(families):
            return []
        increases = []
        for key, sums in _sums(families).items():
            before = self._sums.get(key, {})
            increase = {name: total - before.get(name, Decimal()) for name, total in sums.items()}
            # A statement that was forgotten and came back has less than before.
            if any(increase.values()) and min(increase.values()) >= 0:
                increases.append((key, increase))
        nothing = Decimal()
        increases.sort(key=lambda item: (item[1].get(_ENERGY, nothing), item[1].get(_CPU, nothing)))
        about, info_by_query, grade = self._about(families), infos(families), _grade(families)
        return [
            {
                "qjoule.grade": grade,
                **dict(_attributes(key, increase, about, info_by_query.get(key, {}))),
            }
            for key, increase in increases[: -MOST_EVENTS - 1 : -1]
        ]

    def _records(self, events: Sequence[dict[str, Any]], unix_s: float) -> list[Any]:
        from opentelemetry._logs import LogRecord  # noqa: PLC0415
        from opentelemetry.sdk._logs import ReadableLogRecord  # noqa: PLC0415
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

        scope, of = InstrumentationScope("qjoule", __version__), resource(self._host)
        unix_ns = round(unix_s * 1e9)
        return [
            ReadableLogRecord(
                LogRecord(timestamp=unix_ns, event_name=EVENT, attributes=attributes), of, scope
            )
            for attributes in events
        ]


def _attributes(
    key: Key, increase: Mapping[str, Decimal], about: About, info: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    server, database, fingerprint = key
    kind = about.kinds.get(server, "")
    texts = {
        "db.system.name": system_name(kind) if kind else "",
        "db.namespace": database,
        "db.query.text": info.get("text", ""),
        "db.query.summary": about.summaries.get((server, fingerprint), ""),
        "qjoule.server": server,
        "qjoule.fingerprint": fingerprint,
    }
    sums = {name: int(n) if name in _COUNTS else float(n) for name, n in increase.items()}
    yield from ((name, text) for name, text in texts.items() if text)
    yield from sums.items()
    for ours, theirs in decoding_of_flavour(kind).collector.items():
        if (value := sums.get(ours, info.get(ours))) is not None:
            yield theirs, value


def _began(families: Sequence[Family]) -> str:
    series = (family.samples for family in families if family.name == "qjoule_start_time_seconds")
    return next((samples[0].value for samples in series), "")


def _grade(families: Sequence[Family]) -> str:
    """How the joules were found: measured, estimated or simulated; of several domains, all."""
    series = (family.samples for family in families if family.name == "qjoule_node_joules")
    return ", ".join(sorted({dict(sample.labels)["grade"] for of in series for sample in of}))


def _sums(families: Sequence[Family]) -> Sums:
    sums: Sums = {}
    for family in families:
        if family.name not in QUERIES:
            continue
        name, _unit = QUERIES[family.name]
        for sample in family.samples:
            labels = dict(sample.labels)
            if labels.get("fingerprint") == RETIRED:
                continue  # all that evicted statements ever took
            kind = labels.get("kind", "")
            attribute = f"{name}.{kind}" if kind else name
            sums.setdefault(_key(labels), {})[attribute] = Decimal(sample.value)
    return sums


def infos(families: Sequence[Family]) -> dict[Key, dict[str, str]]:
    series = (
        family.samples
        for family in families
        if family.name == "qjoule_query" and family.kind == "info"
    )
    labels = (dict(sample.labels) for samples in series for sample in samples)
    return {_key(info): info for info in labels}


def _key(labels: Mapping[str, str]) -> Key:
    return labels.get("server", ""), labels.get("database", ""), labels.get("fingerprint", "")
