# SPDX-License-Identifier: Apache-2.0
"""What is read of a page and sent to receivers, and what becomes of pages that were not taken."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from metrics_pages import snapshots
from otlp_receiver import program, receiver
from qjoule.metrics.collected import counter_families
from qjoule.metrics.counters import Counters, Limits
from qjoule.metrics.exposition import EDGES, Family, Sample, page, unlabelled_gauge
from qjoule.metrics.interval import interval_of
from qjoule.push import events, otlp
from qjoule.push.__main__ import MOST_RETRY_S, families_of, run, with_events
from qjoule.push.events import MOST_EVENTS, TopQueries
from qjoule.push.otlp import Otlp
from waiting import until


def to(patch: pytest.MonkeyPatch, url: str, headers: str = "") -> Otlp:
    patch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", url)
    patch.setenv("OTEL_EXPORTER_OTLP_METRICS_HEADERS", headers)
    return Otlp("db1")


def as_read(*families: Family) -> list[Family]:
    """Families as they come from the page."""
    return families_of(page(families, openmetrics=True).decode())


def counters() -> list[Family]:
    counters = Counters(Limits(), 1_000.0)
    for snapshot in snapshots():
        counters.take(interval_of(snapshot.interval), snapshot.elapsed_s, 2_000.0)
    return list(counter_families(counters))


LABELS = (("server", "db:1"), ("fingerprint", "f"))
BUCKETS = tuple(range(1, len(EDGES) + 1))
HISTOGRAM = Family(
    *("qjoule_query_latency_seconds", "histogram", "Latency.", "seconds"),
    [Sample(LABELS, "1.5", "1000.000", BUCKETS, 20)],
)


def exported(patch: pytest.MonkeyPatch, *families: Family) -> Any:
    with receiver() as receives:
        assert to(patch, receives.url, "x-scope=a").send(as_read(*families), 1234.5)
    assert receives.got[0][0]["x-scope"] == "a"
    return decoded(receives.got)


def decoded(requests: Sequence[tuple[object, bytes]]) -> Any:
    ((_, content),) = requests
    request = ExportMetricsServiceRequest()
    request.ParseFromString(content)
    return request


def attributes(of: Any) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in of.attributes}


def test_otlp_uses_the_conventions(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Sample((("server", "db:1"), ("kind", "mysql")), "1")
    text = Sample((*LABELS, ("text", "select a from t where b = ?")), "1")
    joules = Sample((*LABELS, ("database", "shop")), "0.000000123", "1000.000")
    (resource,) = exported(
        monkeypatch,
        *counters(),
        HISTOGRAM,
        Family("qjoule_server", "info", "", samples=[kind]),
        Family("qjoule_query", "info", "", samples=[text]),
        Family("qjoule_query_joules", "counter", "", "joules", [joules]),
    ).resource_metrics
    assert attributes(resource.resource)["host.name"] == "db1"
    metrics: dict[str, list[Any]] = {}
    for metric in resource.scope_metrics[0].metrics:
        metrics.setdefault(metric.name, []).append(metric)
    assert not any("info" in name for name in metrics)
    (energy,) = metrics["hw.energy"]
    assert (energy.unit, energy.sum.is_monotonic, energy.sum.aggregation_temporality) == ("J", 1, 2)
    hardware = [attributes(point) for point in energy.sum.data_points]
    kinds = {labels["hw.id"]: labels["hw.type"] for labels in hardware}
    assert kinds == {"package": "cpu", "dram": "memory"}
    assert {labels["qjoule.grade"] for labels in hardware} == {"simulated"}
    (waits,) = metrics["qjoule.query.wait.time"]
    assert (waits.unit, waits.sum.is_monotonic) == ("s", 1)
    kinds_of_wait = {attributes(point)["qjoule.kind"] for point in waits.sum.data_points}
    assert kinds_of_wait == {"run_queue", "lock", "io", "network", "sleep", "other"}
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


# ---- events --------------------------------------------------------------------------------------


NODE = (("domain", "package"), ("grade", "estimated"))


def top_queries(patch: pytest.MonkeyPatch, url: str) -> TopQueries:
    patch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", url)
    return TopQueries("db1", to(patch, url).about)


def shown(began_s: str, *queries: tuple[str, str, Mapping[str, str]]) -> list[Family]:
    """A page. Each query: its server, its fingerprint and its sums, by their families' names."""
    sums: dict[str, list[Sample]] = {}
    infos = []
    for server, fingerprint, its in queries:
        labels = (("server", server), ("database", "shop"), ("fingerprint", fingerprint))
        of_text = ("text", f"select {fingerprint} from t")
        infos.append(Sample((*labels, of_text, ("queryid", "-7")), "1"))
        for name, value in its.items():
            family, _, kind = name.partition(" ")
            more = (("kind", kind),) if kind else ()
            sums.setdefault(family, []).append(Sample((*labels, *more), value))
    kinds = [
        Sample((("server", product), ("kind", product)), "1") for product in ("postgres", "mariadb")
    ]
    return as_read(
        unlabelled_gauge("qjoule_start_time_seconds", "", float(began_s), "seconds"),
        Family("qjoule_node_joules", "counter", "", samples=[Sample(NODE, "9")]),
        Family("qjoule_server", "info", "", samples=kinds),
        Family("qjoule_query", "info", "", samples=infos),
        *(Family(f"qjoule_query_{name}", "counter", "", samples=of) for name, of in sums.items()),
    )


def test_events_have_what_was_added_since_the_last_page_that_was_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cheap = "mariadb", "b", {"joules": "0.25", "cpu_seconds": "1", "calls": "4"}
    first = ("postgres", "a", {"joules": "1.000000001", "calls": "2", "rows": "9"}), cheap
    added = {"joules": "3.000000002", "calls": "5", "rows": "9", "wait_seconds lock": "0.5"}
    dear = "mariadb", "b", {"joules": "0.5", "cpu_seconds": "1", "calls": "7"}
    with receiver(200, 503, 200) as receives:
        top = top_queries(monkeypatch, receives.url)
        assert top.send(shown("1", *first), 10.0) and not receives.got, "nothing to compare with"
        assert top.send(shown("1", *first), 20.0) and not receives.got, "nothing was added"
        assert top.send(shown("1", ("postgres", "a", {**first[0][2], "calls": "3"}), cheap), 25.0)
        monkeypatch.setattr(events, "TIMEOUT_S", 0.3)
        impatient = top_queries(monkeypatch, receives.url)
        impatient.send(shown("1", *first), 10.0)
        assert not impatient.send(shown("1", ("postgres", "a", added), dear), 30.0)
        assert impatient.send(shown("1", ("postgres", "a", added), dear), 40.0)
    request = ExportLogsServiceRequest()
    request.ParseFromString(receives.got[-1][1])
    (resource,) = request.resource_logs
    assert attributes(resource.resource)["host.name"] == "db1"
    records = resource.scope_logs[0].log_records
    assert {record.event_name for record in records} == {"db.server.top_query"}
    assert {record.time_unix_nano for record in records} == {40 * 10**9}
    by_a, by_b = (
        {attribute.key: value_of(attribute.value) for attribute in of.attributes} for of in records
    )
    assert by_a == {
        **{"db.system.name": "postgresql", "db.namespace": "shop", "postgresql.queryid": "-7"},
        **{"db.query.text": "select a from t", "db.query.summary": "SELECT t"},
        **{"qjoule.server": "postgres", "qjoule.fingerprint": "a", "qjoule.grade": "estimated"},
        **{"qjoule.query.energy": 2.000000001, "qjoule.query.calls": 3, "qjoule.query.rows": 0},
        **{"qjoule.query.wait.time.lock": 0.5, "postgresql.calls": 3, "postgresql.rows": 0},
    }
    digest = "mysql.events_statements_summary_by_digest"
    assert (by_b["qjoule.query.energy"], by_b[f"{digest}.count_star"]) == (0.25, 3)


def value_of(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def test_no_event_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters that began anew, a statement that was forgotten meanwhile, and more than fit."""
    with receiver() as receives:
        top = top_queries(monkeypatch, receives.url)
        statement = "mariadb", "b", {"joules": "5", "calls": "7"}
        top.send(shown("1", statement), 10.0)
        assert top.events(shown("2", statement)) == []
        assert top.events(shown("1", ("mariadb", "b", {"joules": "4", "calls": "8"}))) == []
        gone = "mariadb", "retired", {"joules": "500", "calls": "7"}
        assert top.events(shown("1", statement, gone)) == [], "all of it was in events before"
        new = [("mariadb", f"n{n}", {"joules": str(n), "calls": "1"}) for n in range(300)]
        made_events = top.events(shown("1", statement, *new))
    assert [of["qjoule.query.energy"] for of in made_events] == list(
        range(299, 299 - MOST_EVENTS, -1)
    )


def test_events_that_are_not_taken_do_not_hold_up_the_metrics(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = iter([True, False, False, True])
    metrics: list[float] = []

    def accepts_metrics(_families: object, unix_s: float) -> bool:
        metrics.append(unix_s)
        return unix_s != 2

    send = with_events(accepts_metrics, lambda _families, _unix_s: next(answers))
    assert [send([], float(at)) for at in range(5)] == [True, True, False, True, True]
    assert metrics == [0, 1, 2, 3, 4]
    refused, again = capsys.readouterr().err.splitlines()
    assert "did not take the events" in refused and "sends events again" in again


@pytest.mark.parametrize("code", [307, 401, 503])
def test_a_page_that_is_not_taken_has_failed(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT_S", 0.3)
    with receiver() as other, receiver(code, Location=other.url) as receives:
        assert not to(monkeypatch, receives.url, "authorization=secret").send([], 1.0)
    assert not other.got, "credentials go to the configured address alone"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert not to(monkeypatch, url).send([], 1.0)


def test_a_page_is_read_as_it_was_written() -> None:
    odd = Sample((("text", 'a "b"\\n\\\n{c="d"} 1\u2028'),), "1")
    families = [*counters(), HISTOGRAM, Family("qjoule_query", "info", 'say "\\\n"', samples=[odd])]
    assert page(as_read(*families), openmetrics=True) == page(families, openmetrics=True)
    for wrong in ("a 1", "# HELP a b\n# TYPE a counter\na 1", "# HELP a b\n{", "<html>"):
        with pytest.raises((ValueError, LookupError)):
            families_of(wrong)


def test_a_page_is_sent_once_and_a_failed_one_replaced_by_the_next_after_growing_pauses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pages = iter([1.0, 1.0, *(float(at) for at in range(2, 14))])
    sent: list[float] = []
    pauses: list[float] = []

    def read() -> tuple[float, list[Family]]:
        at = next(pages)
        if at == 3.0:
            raise ConnectionError("refused")
        return at, []

    def send(_families: object, unix_s: float) -> bool:
        sent.append(unix_s)
        return not 4 <= unix_s < 12

    with pytest.raises(StopIteration):
        run(read, send, 15.0, pauses.append)
    assert sent == [1.0, 2.0, *(float(at) for at in range(4, 14))]
    assert pauses[:3] == [*pauses[-2:], 15.0] == [15.0] * 3
    for number, pause_s in enumerate(pauses[3:-2]):
        most_s = min(2.0**number, MOST_RETRY_S)
        assert most_s / 2 <= pause_s <= most_s
    refused, not_taken, again = capsys.readouterr().err.splitlines()
    assert "refused" in refused and "did not take" in not_taken and "sends again" in again


@pytest.mark.parametrize(
    ("uid", "endpoint", "headers", "says"),
    [
        (7, "", "", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT must be the receiver's URL"),
        (7, "http://db1:4318", "authorization=secret", "headers need https"),
        (0, "https://db1:4318", "", "not as root"),
    ],
)
def test_it_starts_as_a_user_for_a_receiver_whose_headers_nobody_reads(
    monkeypatch: pytest.MonkeyPatch, uid: int, endpoint: str, headers: str, says: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    done = subprocess.run(program(uid), capture_output=True, text=True, check=False)
    assert done.returncode == 1 and says in done.stderr and "secret" not in done.stderr


def test_the_program_sends_the_page_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = unlabelled_gauge("qjoule_last_interval_timestamp_seconds", "", 1234.5, "seconds")
    with receiver() as receives:
        receives.page = page([shown], openmetrics=True)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", receives.url)
        with subprocess.Popen(program(7, receives.url)) as running:
            try:
                until(lambda: receives.got)
            finally:
                running.kill()
    sent = decoded(receives.got).resource_metrics[0].scope_metrics[0].metrics[0]
    (point,) = sent.gauge.data_points
    assert (point.as_double, point.time_unix_nano) == (1234.5, 1_234_500_000_000)
