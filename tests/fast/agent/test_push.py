# SPDX-License-Identifier: Apache-2.0
"""What is sent to others: decoded by protobuf's own library, and what becomes of pages."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import cramjam
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from http_receiver import receiver
from metrics_pages import query, source, window
from qjoule.agent.config import load
from qjoule.errors import QjouleError, UsageError
from qjoule.metrics.board import Board
from qjoule.metrics.collected import of_counters
from qjoule.metrics.counters import Counters, Limits
from qjoule.metrics.families import EDGES, EDGES_S, Family, Sample
from qjoule.metrics.interval import interval_of
from qjoule.push import http, otlp
from qjoule.push.http import Poster, read_headers
from qjoule.push.otlp import Otlp
from qjoule.push.pusher import MOST_RETRY_S, Outcome, Pusher, Result, Tally, families
from qjoule.push.remote_write import MOST_SERIES, RemoteWrite
from qjoule.snapshots import Controls

OWN = (("instance", "db1"), ("job", "qjoule"))


def write_request() -> Any:
    """prompb.WriteRequest, as the specification of remote write has it."""
    file = descriptor_pb2.FileDescriptorProto(name="remote.proto", package="p", syntax="proto3")
    one, many = 1, 3

    def message(name: str, *fields: tuple[str, int, int, int, str]) -> None:
        found = file.message_type.add(name=name)
        for its, number, kind, label, of in fields:
            added = found.field.add(name=its, number=number, type=kind, label=label)
            if of:
                added.type_name = of

    text, number, integer, nested = 9, 1, 3, 11
    message("Label", ("name", 1, text, one, ""), ("value", 2, text, one, ""))
    message("Sample", ("value", 1, number, one, ""), ("timestamp", 2, integer, one, ""))
    message(
        "TimeSeries",
        ("labels", 1, nested, many, ".p.Label"),
        ("samples", 2, nested, many, ".p.Sample"),
    )
    message(
        "MetricMetadata",
        ("type", 1, 5, one, ""),
        ("metric_family_name", 2, text, one, ""),
        ("help", 4, text, one, ""),
        ("unit", 5, text, one, ""),
    )
    message(
        "WriteRequest",
        ("timeseries", 1, nested, many, ".p.TimeSeries"),
        ("metadata", 3, nested, many, ".p.MetricMetadata"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.WriteRequest"))


WriteRequest = write_request()


def decoded(content: bytes) -> Any:
    found = WriteRequest()
    found.ParseFromString(bytes(cramjam.snappy.decompress_raw(content)))
    return found


def series(content: bytes) -> dict[tuple[tuple[str, str], ...], tuple[float, int]]:
    found = {}
    for one in decoded(content).timeseries:
        labels = tuple((label.name, label.value) for label in one.labels)
        assert list(labels) == sorted(labels), "receivers want them sorted"
        assert labels not in found
        (sample,) = one.samples
        found[labels] = sample.value, sample.timestamp
    return found


def counters() -> list[Family]:
    found = Counters(Limits(), 1_000.0)
    rows = [query(shape, 1000, calls=shape) for shape in (1, 2, 3)]
    pieces = [window(n, rows, (n + 1) * 1000) for n in range(30)]
    for snapshot in source(pieces, (1, 2, 3)).snapshots(Controls(0.5, totals=False)):
        found.take(interval_of(snapshot.interval), snapshot.elapsed_s, 2_000.0)
    return shown(*of_counters(found))


def shown(*families: Family) -> list[Family]:
    """As they come from the engine."""
    board = Board()
    board.show(families, 1.0, 1.0)
    found = board.read()
    assert found is not None
    return found[2]


HISTOGRAM = Family(
    "qjoule_query_latency_seconds",
    "histogram",
    "Latency.",
    "seconds",
    [
        Sample(
            (("server", "db:1"), ("fingerprint", "f")),
            "1.5",
            "1000.000",
            tuple(range(1, len(EDGES) + 1)),
            20,
        )
    ],
)


def test_remote_write_holds_the_page() -> None:
    with receiver() as its:
        result = RemoteWrite(Poster(its.url, {}), OWN).send([*counters(), HISTOGRAM], 1234.5678)
    assert result.outcome is Outcome.SENT
    ((headers, content),) = its.got
    assert headers["content-encoding"] == "snappy"
    assert headers["x-prometheus-remote-write-version"] == "0.1.0"
    found = series(content)
    assert {at for _, at in found.values()} == {1_234_568}
    node = [
        value
        for labels, (value, _) in found.items()
        if ("__name__", "qjoule_node_joules_total") in labels and ("domain", "package") in labels
    ]
    owners = [
        value
        for labels, (value, _) in found.items()
        if ("__name__", "qjoule_owner_joules_total") in labels and ("domain", "package") in labels
    ]
    assert sum(owners) == pytest.approx(sum(node), abs=1e-6)
    assert all(pair in labels for labels in found for pair in OWN)
    name = "qjoule_query_latency_seconds"
    rest = (*OWN, ("server", "db:1"), ("fingerprint", "f"))
    for edge, count in zip(EDGES_S, range(1, 100), strict=False):
        key = tuple(sorted([("__name__", f"{name}_bucket"), ("le", edge), *rest]))
        assert found[key][0] == count
    assert found[tuple(sorted([("__name__", f"{name}_sum"), *rest]))][0] == 1.5
    described = {one.metric_family_name: one for one in decoded(content).metadata}
    assert described["qjoule_node_joules_total"].unit == "joules"


def test_remote_write_says_that_a_series_has_ended() -> None:
    def page(*names: str) -> list[Family]:
        samples = [Sample((("a", name),), "1") for name in names]
        return [Family("qjoule_test", "gauge", "", samples=samples)]

    with receiver() as its:
        one = RemoteWrite(Poster(its.url, {}), ())
        for names in (("x", "y"), ("x",), ("x",)):
            one.send(page(*names), 1.0)
    first, second, third = (series(content) for _, content in its.got)
    (ended,) = (labels for labels in second if ("a", "y") in labels)
    assert struct.pack("<d", second[ended][0]) == struct.pack("<Q", 0x7FF0000000000002)
    assert len(first) == 2 and len(third) == 1


def test_remote_write_divides_what_is_large() -> None:
    samples = [Sample((("a", str(n)),), "1") for n in range(MOST_SERIES + 5)]
    with receiver() as its:
        RemoteWrite(Poster(its.url, {}), ()).send([Family("q", "gauge", "", samples=samples)], 1.0)
    assert [len(series(content)) for _, content in its.got] == [MOST_SERIES, 5]


def exported(*given: Family) -> Any:
    with receiver() as its:
        one = Otlp(its.url, {"X-Scope": "a"}, "db1")
        assert one.send(shown(*given), 1234.5).outcome is Outcome.SENT
    ((headers, content),) = its.got
    assert headers["x-scope"] == "a"
    found = ExportMetricsServiceRequest()
    found.ParseFromString(content)
    return found


def attributes(of: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in of.attributes}


def test_otlp_uses_the_conventions() -> None:
    server = Family(
        "qjoule_server", "info", "", samples=[Sample((("server", "db:1"), ("kind", "mysql")), "1")]
    )
    text = (("server", "db:1"), ("fingerprint", "f"), ("text", "select a from t where b = ?"))
    info = Family("qjoule_query", "info", "", samples=[Sample(text, "1")])
    key = (("server", "db:1"), ("database", "shop"), ("fingerprint", "f"))
    joules = Sample(key, "0.000000123", "1000.000")
    queries = Family("qjoule_query_joules", "counter", "", "joules", [joules])
    (resource,) = exported(*counters(), HISTOGRAM, server, info, queries).resource_metrics
    assert attributes(resource.resource)["host.name"] == "db1"
    metrics: dict[str, list[Any]] = {}
    for one in resource.scope_metrics[0].metrics:
        metrics.setdefault(one.name, []).append(one)
    assert not any("info" in name for name in metrics)
    (energy,) = metrics["hw.energy"]
    assert (energy.unit, energy.sum.is_monotonic, energy.sum.aggregation_temporality) == ("J", 1, 2)
    kinds = {
        attributes(point)["hw.id"]: attributes(point)["hw.type"] for point in energy.sum.data_points
    }
    assert kinds == {"package": "cpu", "dram": "memory"}
    assert all(attributes(point)["qjoule.grade"] == "simulated" for point in energy.sum.data_points)
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


def test_otlp_without_a_receiver_fails_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "_TIMEOUT_S", 0.3)
    one = Otlp("http://127.0.0.1:9/v1/metrics", {}, "db1")
    assert one.send(counters(), 1.0).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (200, Outcome.SENT),
        (204, Outcome.SENT),
        (302, Outcome.REJECTED),
        (400, Outcome.REJECTED),
        (401, Outcome.REJECTED),
        (429, Outcome.FAILED),
        (500, Outcome.FAILED),
        (503, Outcome.FAILED),
    ],
)
def test_what_an_answer_means(code: int, outcome: Outcome) -> None:
    with receiver() as other, receiver(code, Location=other.url, Retry_After="7") as its:
        result = Poster(its.url, {"Authorization": "secret"}).post(b"x", {})
    assert result.outcome is outcome
    assert result.wait_s == (7.0 if outcome is Outcome.FAILED else 0.0)
    assert not other.got, "credentials go to the configured address alone"


def test_one_that_does_not_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert Poster(url, {}).post(b"x", {}).outcome is Outcome.FAILED


@dataclass
class Story:
    """A pusher whose sends have these outcomes, on a clock of its own."""

    outcomes: list[Outcome]
    raises: Exception | None = None
    now_s: float = 100.0
    sent: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.board, self.tally = Board(), Tally("x", 1.0)
        self.pusher = Pusher(
            self.board,
            self._send,
            15.0,
            self.tally,
            monotonic=lambda: self.now_s,
            wall=lambda: self.now_s + 1e6,
        )

    def _send(self, _families: object, unix_s: float) -> Result:
        if self.raises:
            raise self.raises
        self.sent.append(unix_s - 1e6)
        return Result(self.outcomes.pop(0) if self.outcomes else Outcome.SENT)

    def show(self) -> None:
        self.board.show([Family("q", "gauge", "", samples=[Sample((), "1")])], self.now_s, 60.0)

    def passes(self, duration_s: float) -> None:
        end_s = self.now_s + duration_s
        while self.now_s < end_s:
            self.now_s += 0.25
            self.pusher.step()


def test_pages_are_sent_in_step_with_their_times() -> None:
    one = Story([])
    for _ in range(7):
        one.show()
        one.passes(10.0)
    assert one.sent == [100.0, 110.0, 130.0, 140.0, 160.0], "the newest at each time, with its time"
    assert one.tally.counts() == {"sent": 5, "failed": 0, "rejected": 0, "replaced": 0}
    assert one.tally.last_s > 1e6


def test_a_failed_page_is_tried_again_with_growing_pauses_and_replaced_by_newer_ones() -> None:
    one = Story([Outcome.FAILED] * 12)
    for _ in range(60):
        one.show()
        one.passes(10.0)
    counts = one.tally.counts()
    assert counts["failed"] == 12
    assert 0 < counts["replaced"] <= 12
    assert counts["sent"] > 5
    assert one.sent[-1] > 600
    retries = one.sent[:13]
    assert retries == sorted(retries)
    assert max(b - a for a, b in pairwise(retries)) <= MOST_RETRY_S + 10


def test_a_rejected_page_is_not_tried_again() -> None:
    one = Story([Outcome.REJECTED])
    one.show()
    one.passes(60.0)
    assert one.tally.counts()["rejected"] == 1
    assert len(one.sent) == 1
    (pages, last) = families([one.tally])
    assert {dict(s.labels)["result"]: s.value for s in pages.samples}["rejected"] == "1"
    assert last.samples[0].value == "0.000"


def test_an_error_of_a_library_is_a_failure() -> None:
    one = Story([], raises=ValueError("what a library says"))
    one.show()
    one.passes(3.0)
    assert one.tally.counts()["failed"] > 1


def test_without_receivers_there_is_no_family() -> None:
    assert list(families([])) == []


def test_headers_are_for_us_alone(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer x y\n\nX-Scope-OrgID:  7\n")
    file.chmod(0o600)
    assert read_headers(str(file)) == {"Authorization": "Bearer x y", "X-Scope-OrgID": "7"}
    file.chmod(0o640)
    with pytest.raises(UsageError, match="others may read it"):
        read_headers(str(file))


@pytest.mark.parametrize(
    "content", [b"no header", b"a: b\rc: d", b"\xff\xfe: x", b": x", b"a:\x00"]
)
def test_what_is_no_header_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "headers"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(UsageError, match="Name: value"):
        read_headers(str(file))


def test_certificates_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("rubbish")
    with pytest.raises(QjouleError, match="no certificates"):
        Poster("https://127.0.0.1/", {}, str(tmp_path / "ca"))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('remote_write_url = "ftp://x"', "must be a URL"),
        ('otlp_endpoint = "http://a b"', "must be a URL"),
        ('otlp_header_file = "relative"', "absolute path"),
        ('otlp_endpoint = "http://x"\notlp_header_file = "/h"', "needs https"),
        ('remote_write_url = "http://x"\nremote_write_header_file = "/h"', "needs https"),
        ("every_s = 0.1", "must be from 1 to 3600"),
    ],
)
def test_a_configuration_that_is_refused(tmp_path: Path, lines: str, words: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f"[push]\n{lines}\n")
    with pytest.raises(UsageError, match=words):
        load(file)
