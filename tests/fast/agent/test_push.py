# SPDX-License-Identifier: Apache-2.0
"""What is read of a page and sent to receivers, and what becomes of pages that were not taken."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from http_receiver import receiver
from metrics_pages import snapshots
from qjoule.metrics.collected import of_counters
from qjoule.metrics.counters import Counters, Limits
from qjoule.metrics.exposition import page
from qjoule.metrics.families import EDGES, Family, Sample
from qjoule.metrics.interval import interval_of
from qjoule.push import otlp
from qjoule.push.__main__ import MOST_RETRY_S, run
from qjoule.push.otlp import Otlp
from qjoule.push.page import families_of


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in os.environ:
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    return monkeypatch


def to(patch: pytest.MonkeyPatch, url: str, headers: str = "") -> Otlp:
    patch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", url)
    patch.setenv("OTEL_EXPORTER_OTLP_METRICS_HEADERS", headers)
    return Otlp("db1")


def as_read(*given: Family) -> list[Family]:
    """Families as they come from the page."""
    return families_of(page(given, openmetrics=True).decode())


def counters() -> list[Family]:
    counters = Counters(Limits(), 1_000.0)
    for one in snapshots():
        counters.take(interval_of(one.interval), one.elapsed_s, 2_000.0)
    return list(of_counters(counters))


LABELS = (("server", "db:1"), ("fingerprint", "f"))
BUCKETS = tuple(range(1, len(EDGES) + 1))
HISTOGRAM = Family(
    *("qjoule_query_latency_seconds", "histogram", "Latency.", "seconds"),
    [Sample(LABELS, "1.5", "1000.000", BUCKETS, 20)],
)


def exported(patch: pytest.MonkeyPatch, *given: Family) -> Any:
    with receiver() as receives:
        assert to(patch, receives.url, "x-scope=a").send(as_read(*given), 1234.5)
    ((headers, content),) = receives.got
    assert headers["x-scope"] == "a"
    request = ExportMetricsServiceRequest()
    request.ParseFromString(content)
    return request


def attributes(of: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in of.attributes}


def test_otlp_uses_the_conventions(environment: pytest.MonkeyPatch) -> None:
    kind = Sample((("server", "db:1"), ("kind", "mysql")), "1")
    text = Sample((*LABELS, ("text", "select a from t where b = ?")), "1")
    joules = Sample((*LABELS, ("database", "shop")), "0.000000123", "1000.000")
    (resource,) = exported(
        environment,
        *counters(),
        HISTOGRAM,
        Family("qjoule_server", "info", "", samples=[kind]),
        Family("qjoule_query", "info", "", samples=[text]),
        Family("qjoule_query_joules", "counter", "", "joules", [joules]),
    ).resource_metrics
    assert attributes(resource.resource)["host.name"] == "db1"
    metrics: dict[str, list[Any]] = {}
    for one in resource.scope_metrics[0].metrics:
        metrics.setdefault(one.name, []).append(one)
    assert not any("info" in name for name in metrics)
    (energy,) = metrics["hw.energy"]
    assert (energy.unit, energy.sum.is_monotonic, energy.sum.aggregation_temporality) == ("J", 1, 2)
    hardware = [attributes(point) for point in energy.sum.data_points]
    kinds = {one["hw.id"]: one["hw.type"] for one in hardware}
    assert kinds == {"package": "cpu", "dram": "memory"}
    assert {one["qjoule.grade"] for one in hardware} == {"simulated"}
    (point,) = metrics["qjoule.query.energy"][-1].sum.data_points
    assert attributes(point) == {
        "qjoule.server": "db:1",
        "db.namespace": "shop",
        "qjoule.fingerprint": "f",
        "db.system.name": "mysql",
        "db.query.summary": "SELECT t",
    }
    assert point.as_double == 1.23e-7
    assert (point.start_time_unix_nano, point.time_unix_nano) == (10**12, 1_234_500_000_000)
    (latency,) = metrics["qjoule.query.duration"][-1].histogram.data_points
    assert list(latency.bucket_counts) == [1] * len(EDGES) + [20 - len(EDGES)]
    assert (latency.count, latency.sum, latency.HasField("min")) == (20, 1.5, False)


@pytest.mark.parametrize("code", [307, 401, 503])
def test_a_page_that_is_not_taken_has_failed(code: int, environment: pytest.MonkeyPatch) -> None:
    environment.setattr(otlp, "_TIMEOUT_S", 0.3)
    with receiver() as other, receiver(code, Location=other.url) as receives:
        assert not to(environment, receives.url, "authorization=secret").send([], 1.0)
    assert not other.got, "credentials go to the configured address alone"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert not to(environment, url).send([], 1.0)


def without_empty_labels(family: Family) -> tuple[object, ...]:
    series = [
        (tuple(label for label in one.labels if label[1]), one.value, one.created, one.buckets)
        for one in family.samples
    ]
    return family.name, family.kind, family.help, series


def test_a_page_is_read_as_it_was_written() -> None:
    odd = Sample((("text", 'a "b"\\n\\\n{c="d"} 1\u2028'), ("empty", "")), "1")
    given = [*counters(), HISTOGRAM, Family("qjoule_query", "info", 'say "\\\n"', samples=[odd])]
    read = as_read(*given)
    assert [*map(without_empty_labels, read)] == [*map(without_empty_labels, given)]
    assert len(read) > 5 and sum(len(family.samples) for family in read) > 20
    for wrong in ("a 1", "# HELP a b\n# TYPE a counter\na 1", "# HELP a b\n{", "<html>"):
        with pytest.raises((ValueError, LookupError)):
            families_of(wrong)


class Ended(BaseException):
    """Ends the loop of a test."""


def test_a_page_is_sent_once_and_a_failed_one_replaced_by_the_next_after_growing_pauses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pages = iter([1.0, 1.0, *(float(at) for at in range(2, 14))])
    sent: list[float] = []
    pauses: list[float] = []

    def read() -> tuple[float, list[Family]]:
        at = next(pages, None)
        if at is None:
            raise Ended
        if at == 3.0:
            raise ConnectionError("refused")
        return at, []

    def send(_families: object, unix_s: float) -> bool:
        sent.append(unix_s)
        return not 4 <= unix_s < 12

    with pytest.raises(Ended):
        run(read, send, 15.0, pauses.append)
    assert sent == [1.0, 2.0, *(float(at) for at in range(4, 14))]
    assert pauses[:3] == [*pauses[-2:], 15.0] == [15.0] * 3
    for number, pause_s in enumerate(pauses[3:-2]):
        most_s = min(2.0**number, MOST_RETRY_S)
        assert most_s / 2 <= pause_s <= most_s
    refused, not_taken, again = capsys.readouterr().err.splitlines()
    assert "refused" in refused and "did not take" in not_taken and "sends again" in again


@pytest.mark.parametrize(
    ("endpoint", "headers", "says"),
    [
        ("", "", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT must be the receiver's URL"),
        ("http://db1:4318", "authorization=secret", "headers need https"),
    ],
)
def test_it_starts_for_a_receiver_whose_headers_nobody_reads(
    environment: pytest.MonkeyPatch, endpoint: str, headers: str, says: str
) -> None:
    if endpoint:
        to(environment, endpoint, headers)
    words = [sys.executable, "-c", "import os; os.geteuid = lambda: 7; "]
    words[-1] += "from qjoule.push.__main__ import main; main()"
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and says in done.stderr and "secret" not in done.stderr
