# SPDX-License-Identifier: Apache-2.0
"""Queries that the agent has drawn at random, as events `db.server.query_sample` in OTLP.

OpenTelemetry's collector has such events of MySQL and PostgreSQL, of the queries that run when it
polls (opentelemetry-collector-contrib, documentation.md of mysqlreceiver and postgresqlreceiver).
These are of ended queries, with their joules. If the client sent a traceparent, its trace and span
are the log record's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import Any

import msgspec

from qjoule import __version__
from qjoule.metrics.exposition import Family
from qjoule.push.events import infos
from qjoule.push.otlp import TIMEOUT_S, About, quiet_session, resource, trace_context
from qjoule.servers.decoding import decoding_of_flavour
from qjoule.servers.registered import system_name

EVENT = "db.server.query_sample"
_SOCKET = "unix"  #: in place of an address


class NotServed(OSError):
    """The agent does not show its drawn queries."""


class Drawn(msgspec.Struct, frozen=True):
    """A query, as `qjoule.agent.recent_queries` shows it. `time`: when it ended, in us."""

    number: int
    time: int
    server: str
    fingerprint: str
    latency_ns: int
    cpu_ns: int
    probability: float
    grade: str = ""
    policy: str = ""
    database: str = ""
    user: str = ""
    application: str = ""
    client: str = ""
    energy_nj: int | None = None
    error_nj: float | None = None
    rows: int | None = None
    outcome: str = ""
    trace: str = ""
    span: str = ""
    waits: dict[str, int] = {}


class Document(msgspec.Struct, frozen=True):
    start: str
    last: int
    queries: tuple[Drawn, ...]


class QuerySamples:
    """Sends each drawn query once, from the start of this program on.

    Args:
        host: the resource's `host.name`.
        about: reads a page's info families.
        read: the agent's document. Raises `NotServed`, `OSError`, `HTTPException`, `ValueError`.
    """

    def __init__(
        self, host: str, about: Callable[[Sequence[Family]], About], read: Callable[[], bytes]
    ) -> None:
        from opentelemetry.exporter.otlp.proto.http import _log_exporter  # noqa: PLC0415

        self._exporter = _log_exporter.OTLPLogExporter(timeout=TIMEOUT_S, session=quiet_session())
        self._host, self._about, self._read = host, about, read
        self._since_us = time.time() * 1e6
        self._start, self._sent = "", 0

    def send(self, families: Sequence[Family], unix_s: float) -> bool:
        """True if the events were taken, or there are none. `families`: of the page."""
        del unix_s
        try:
            document = msgspec.json.decode(self._read(), type=Document)
        except NotServed:
            return True
        except (OSError, HTTPException, ValueError):  # the sender of metrics reports it
            return False
        sent = self._sent if document.start == self._start else 0
        new = [
            query
            for query in document.queries
            if query.number > sent and query.time >= self._since_us
        ]
        try:
            if new and self._exporter.export(self._records(new, families)).name != "SUCCESS":
                return False
        except Exception:  # of requests, urllib3 or the SDK: none may end the process
            return False
        lost = (new[0].number - sent - 1) if new and sent else 0
        if lost > 0:
            print(
                f"qjoule: {lost} drawn queries were not sent in time", file=sys.stderr, flush=True
            )
        self._start, self._sent = document.start, document.last
        return True

    def _records(self, queries: Sequence[Drawn], families: Sequence[Family]) -> list[Any]:
        from opentelemetry._logs import LogRecord  # noqa: PLC0415
        from opentelemetry.sdk._logs import ReadableLogRecord  # noqa: PLC0415
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415
        from opentelemetry.trace import TraceFlags  # noqa: PLC0415

        scope, of = InstrumentationScope("qjoule", __version__), resource(self._host)
        about = self._about(families)
        info_by_query = {(server, shape): of for (server, _, shape), of in infos(families).items()}
        return [
            ReadableLogRecord(
                LogRecord(
                    timestamp=query.time * 1000,
                    event_name=EVENT,
                    attributes=dict(attributes(query, about, info_by_query)),
                    **trace_of(query, TraceFlags(0)),
                ),
                of,
                scope,
            )
            for query in queries
        ]


def trace_of(query: Drawn, flags: Any) -> dict[str, Any]:
    """Arguments of a `LogRecord`; none if the query is of no trace."""
    ids = trace_context(query.trace, query.span)
    return {"trace_id": ids[0], "span_id": ids[1], "trace_flags": flags} if ids else {}


def attributes(
    query: Drawn, about: About, info_by_query: Mapping[tuple[str, str], Mapping[str, str]]
) -> Iterator[tuple[str, Any]]:
    """Attributes of a query's event.

    `info_by_query`: labels of the page's info family by server and fingerprint.
    """
    kind = about.kinds.get(query.server, "")
    info = info_by_query.get((query.server, query.fingerprint), {})
    address = "" if query.client == _SOCKET else query.client
    texts = {
        "db.system.name": system_name(kind) if kind else "",
        "db.namespace": query.database,
        "db.query.text": info.get("text", ""),
        "db.query.summary": about.summaries.get((query.server, query.fingerprint), ""),
        "user.name": query.user,
        "client.address": address,
        "network.peer.address": address,
        "qjoule.application": query.application,
        "qjoule.server": query.server,
        "qjoule.fingerprint": query.fingerprint,
        "qjoule.query.outcome": query.outcome,
        "qjoule.grade": query.grade,
        "qjoule.idle": query.policy,
    }
    yield from ((name, text) for name, text in texts.items() if text)
    yield "qjoule.query.duration", query.latency_ns / 1e9
    yield "qjoule.query.cpu.time", query.cpu_ns / 1e9
    yield "qjoule.sample.probability", query.probability
    if query.energy_nj is not None and query.error_nj is not None:
        yield "qjoule.query.energy", query.energy_nj / 1e9
        yield "qjoule.query.energy.error", query.error_nj / 1e9
    if query.rows is not None:
        yield "qjoule.query.rows", query.rows
    for name, wait_ns in query.waits.items():
        yield f"qjoule.query.wait.time.{name}", wait_ns / 1e9
    for ours, theirs in decoding_of_flavour(kind).collector_sample.items():
        if value := texts.get(ours) or info.get(ours):
            yield theirs, value
