# SPDX-License-Identifier: Apache-2.0
"""OTLP over HTTP, by OpenTelemetry's SDK: families as its metrics, with its names where it has any.

Semantic conventions 1.37: hardware metrics (`hw.energy`, `hw.host.energy`), database attributes
(`db.system.name`, `db.namespace`, `db.query.summary`). What they lack is called `qjoule.*`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from qjoule import __version__
from qjoule.errors import QjouleError
from qjoule.metrics.exposition import EDGES_S, Family, Labels, Sample
from qjoule.servers.decoding import summary_of
from qjoule.servers.registered import system_name

NOT_INSTALLED = "OpenTelemetry is not installed: pip install 'qjoule[push]'"
TIMEOUT_S = 10.0
_BOUNDS_S = tuple(float(edge) for edge in EDGES_S)
#: `hw.type` of RAPL's domains.
_HARDWARE = {"dram": "memory", "package": "cpu", "core": "cpu", "uncore": "cpu"}
_UNITS = {"joules": "J", "seconds": "s", "bytes": "By", "ratio": "1"}
#: qjoule's own names of a query's metrics, and what they count.
QUERIES = {
    "qjoule_query_joules": ("qjoule.query.energy", "J"),
    "qjoule_query_cpu_seconds": ("qjoule.query.cpu.time", "s"),
    "qjoule_query_wait_seconds": ("qjoule.query.wait.time", "s"),
    "qjoule_query_helper_wait_seconds": ("qjoule.query.helper.wait.time", "s"),
    "qjoule_query_calls": ("qjoule.query.calls", "{call}"),
    "qjoule_query_errors": ("qjoule.query.errors", "{query}"),
    "qjoule_query_rows": ("qjoule.query.rows", "{row}"),
    "qjoule_query_latency_seconds": ("qjoule.query.duration", "s"),
}
_TRACE, _SPAN = re.compile("[0-9a-f]{32}"), re.compile("[0-9a-f]{16}")
_ATTRIBUTES = {"database": "db.namespace", "server": "qjoule.server"}


@dataclass(frozen=True)
class About:
    """Labels of a page's info families: kinds by server, summaries by (server, fingerprint)."""

    kinds: Mapping[str, str]
    summaries: Mapping[tuple[str, str], str]


class Otlp:
    """`host`: the resource's `host.name`. The SDK reads the receiver and its keys from the
    environment. Raises QjouleError without the SDK.
    """

    def __init__(self, host: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http import (  # noqa: PLC0415
                metric_exporter,
            )

            session = quiet_session()
        except ImportError:
            raise QjouleError(NOT_INSTALLED) from None
        # this program reports errors itself
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter = metric_exporter.OTLPMetricExporter(timeout=TIMEOUT_S, session=session)
        self._host = host
        self._summary: dict[tuple[str, str], str] = {}  #: by kind and text

    def send(self, families: Sequence[Family], unix_s: float) -> bool:
        from opentelemetry.sdk.metrics.export import MetricExportResult  # noqa: PLC0415

        try:
            done = self._exporter.export(
                self.metrics_data(families, unix_s), timeout_millis=TIMEOUT_S * 1000
            )
        except Exception:  # of requests, urllib3 or the SDK: none may end the process
            return False
        return done is MetricExportResult.SUCCESS

    def metrics_data(self, families: Sequence[Family], unix_s: float) -> Any:
        """The SDK's `MetricsData` of families at a Unix time."""
        from opentelemetry.sdk.metrics import export  # noqa: PLC0415
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

        about = self.about(families)
        unix_ns = round(unix_s * 1e9)
        metrics = [
            metric
            for family in families
            if family.kind != "info"
            for metric in _metrics(family, about, unix_ns)
        ]
        scope = export.ScopeMetrics(InstrumentationScope("qjoule", __version__), metrics, "")
        return export.MetricsData([export.ResourceMetrics(resource(self._host), [scope], "")])

    def about(self, families: Sequence[Family]) -> About:
        """Reads the info families of a page."""
        infos = {family.name: family.samples for family in families if family.kind == "info"}
        kinds: dict[str, str] = {}
        for sample in infos.get("qjoule_server", ()):
            labels = dict(sample.labels)
            kinds[labels["server"]] = labels["kind"]
        summaries: dict[tuple[str, str], str] = {}
        for sample in infos.get("qjoule_query", ()):
            labels = dict(sample.labels)
            kind = kinds.get(labels["server"], "")
            if text := labels.get("text", ""):
                key = labels["server"], labels["fingerprint"]
                summaries[key] = self._summarised(kind, text)
        return About(kinds, summaries)

    def _summarised(self, kind: str, text: str) -> str:
        if (kind, text) not in self._summary:
            if len(self._summary) > 10_000:
                self._summary.clear()
            self._summary[kind, text] = summary_of(kind, text)
        return self._summary[kind, text]


def check_receiver(signal: str, version: str = "v1/") -> str:
    """The receiver's URL of a signal. Raises `QjouleError`: there is none, or others could read its
    keys.
    """
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_"
    endpoint, headers = setting(signal, "ENDPOINT"), setting(signal, "HEADERS")
    if not re.match("https?://", endpoint):
        raise QjouleError(
            f"{own}ENDPOINT must be the receiver's URL, such as https://host:4318/{version}{signal}"
        )
    if headers and endpoint.startswith("http:"):
        raise QjouleError("headers need https: others on the way could read them")
    if os.environ.get(f"{own}ENDPOINT"):
        return endpoint
    return f"{endpoint.rstrip('/')}/{version}{signal}"


def setting(signal: str, what: str) -> str:
    """A setting from the environment: the signal's own, or else the one for all signals."""
    own, common = (f"OTEL_EXPORTER_OTLP_{of}{what}" for of in (f"{signal.upper()}_", ""))
    return os.environ.get(own) or os.environ.get(common) or ""


def quiet_session() -> Any:
    """A session of `requests` that sends headers only to the configured address."""
    import requests  # noqa: PLC0415 (optional, and slow to import)

    session = requests.Session()
    session.trust_env = False  # no proxies of the environment
    session.max_redirects = 0
    return session


def resource(host: str) -> Any:
    """The SDK's `Resource` of this program on a host."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    return Resource({"service.name": "qjoule", "service.version": __version__, "host.name": host})


def _metrics(family: Family, about: About, unix_ns: int) -> Iterator[Any]:
    from opentelemetry.sdk.metrics import export  # noqa: PLC0415

    points: dict[tuple[str, str], list[Any]] = {}
    for sample in family.samples:
        name, unit, attributes = _metric_of(family, sample.labels, about)
        point = _point(family, sample, attributes, unix_ns)
        points.setdefault((name, unit), []).append(point)
    cumulative = export.AggregationTemporality.CUMULATIVE
    make: Callable[[list[Any]], Any] = {
        "counter": lambda data: export.Sum(data, cumulative, is_monotonic=True),
        "histogram": lambda data: export.Histogram(data, cumulative),
    }.get(family.kind, export.Gauge)
    for (name, unit), metric_points in points.items():
        yield export.Metric(name, family.help, unit, make(metric_points))


def _metric_of(family: Family, labels: Labels, about: About) -> tuple[str, str, dict[str, str]]:
    """The metric that a sample belongs to, its unit, and the sample's attributes."""
    values = dict(labels)
    if family.name == "qjoule_node_joules":
        domain = values["domain"]
        attributes = {"hw.id": domain, "qjoule.grade": values["grade"]}
        if domain == "psys":
            return "hw.host.energy", "J", attributes
        if domain in _HARDWARE:
            attributes["hw.type"] = _HARDWARE[domain]
            return "hw.energy", "J", attributes
        return "qjoule.domain.energy", "J", attributes
    server = values.get("server", "")
    attributes = {_ATTRIBUTES.get(name, f"qjoule.{name}"): of for name, of in labels if of}
    if kind := about.kinds.get(server):
        attributes["db.system.name"] = system_name(kind)
    if family.name not in QUERIES:
        name = "qjoule." + family.name.removeprefix("qjoule_").replace("_joules", "_energy")
        return name, _UNITS.get(family.unit, "1"), attributes
    if summary := about.summaries.get((server, values.get("fingerprint", ""))):
        attributes["db.query.summary"] = summary
    return *QUERIES[family.name], attributes


def _point(family: Family, sample: Sample, attributes: Mapping[str, str], unix_ns: int) -> Any:
    from opentelemetry.sdk.metrics import export  # noqa: PLC0415

    began_ns = round(float(sample.created) * 1e9) if sample.created else 0
    if family.kind != "histogram":
        value = int(sample.value) if sample.value.isdigit() else float(sample.value)
        return export.NumberDataPoint(attributes, began_ns, unix_ns, value)
    below = [0, *sample.buckets, sample.count]
    counts = [after - before for before, after in pairwise(below)]
    unknown: Any = None  # no smallest, no largest
    total = sample.count, float(sample.value)
    return export.HistogramDataPoint(
        *(attributes, began_ns, unix_ns, *total, counts, _BOUNDS_S, unknown, unknown),
        exemplars=list(_exemplars(sample)),
    )


def _exemplars(sample: Sample) -> Iterator[Any]:
    from opentelemetry.sdk.metrics import Exemplar  # noqa: PLC0415

    for exemplar in sample.exemplars:
        if ids := trace_context(exemplar.trace, exemplar.span):
            unix_ns = round(float(exemplar.unix_s) * 1e9)
            yield Exemplar({}, float(exemplar.value), unix_ns, span_id=ids[1], trace_id=ids[0])


def trace_context(trace: str, span: str) -> tuple[int, int] | None:
    """The ids of a trace and a span, if both are valid (W3C Trace Context, 3.2.2)."""
    if not _TRACE.fullmatch(trace) or not _SPAN.fullmatch(span):
        return None
    ids = int(trace, 16), int(span, 16)
    return ids if all(ids) else None
