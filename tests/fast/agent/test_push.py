# SPDX-License-Identifier: Apache-2.0
"""What is sent to receivers, decoded again, and what becomes of pages that were not taken."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import cramjam
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

import metrics_pages
from http_receiver import receiver
from metrics_pages import snapshots
from qjoule.errors import QjouleError, UsageError
from qjoule.metrics.board import Board
from qjoule.metrics.collected import of_counters
from qjoule.metrics.counters import Counters, Limits
from qjoule.metrics.families import EDGES, Family, Sample
from qjoule.metrics.interval import interval_of
from qjoule.push import http, otlp
from qjoule.push.http import Poster, read_headers
from qjoule.push.otlp import Otlp
from qjoule.push.pusher import MOST_RETRY_S, Outcome, Pusher, Result, Tally, families
from qjoule.push.remote_write import RemoteWrite


def as_read(*given: Family) -> list[Family]:
    """Families as they come from the engine."""
    board = Board()
    board.show(given, 1.0, 1.0)
    shown = board.read()
    assert shown is not None
    return shown[2]


def counters() -> list[Family]:
    counters = Counters(Limits(), 1_000.0)
    for one in snapshots():
        counters.take(interval_of(one.interval), one.elapsed_s, 2_000.0)
    return as_read(*of_counters(counters))


LABELS = (("server", "db:1"), ("fingerprint", "f"))
BUCKETS = tuple(range(1, len(EDGES) + 1))
HISTOGRAM = Family(
    *("qjoule_query_latency_seconds", "histogram", "Latency.", "seconds"),
    [Sample(LABELS, "1.5", "1000.000", BUCKETS, 20)],
)


def test_remote_write_holds_the_page() -> None:
    with receiver() as receives:
        sent = RemoteWrite(Poster(receives.url, {}), (("instance", "db1"),))
        assert sent.send([*counters(), HISTOGRAM], 1234.5678).outcome is Outcome.SENT
    ((headers, content),) = receives.got
    assert headers["content-encoding"] == "snappy"
    request = bytes(cramjam.snappy.decompress_raw(content))
    joules = {"owner": 0.0, "node": 0.0}
    for series in metrics_pages.field(request, 1):
        pairs = [dict(metrics_pages.fields(label)) for label in metrics_pages.field(series, 1)]
        labels = {pair[1].decode(): pair[2].decode() for pair in pairs}
        assert list(labels) == sorted(labels) and labels["instance"] == "db1"
        (sample,) = metrics_pages.field(series, 2)
        assert metrics_pages.field(sample, 2) == [1_234_568]
        for owner in joules:
            if labels["__name__"] == f"qjoule_{owner}_joules_total":
                joules[owner] += metrics_pages.field(sample, 1)[0]
    assert joules["owner"] == pytest.approx(joules["node"]) and joules["node"] > 0


def exported(*given: Family) -> Any:
    with receiver() as receives:
        sender = Otlp(receives.url, {"X-Scope": "a"}, "db1")
        assert sender.send(as_read(*given), 1234.5).outcome is Outcome.SENT
    ((headers, content),) = receives.got
    assert headers["x-scope"] == "a"
    request = ExportMetricsServiceRequest()
    request.ParseFromString(content)
    return request


def attributes(of: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in of.attributes}


def test_otlp_uses_the_conventions() -> None:
    kind = Sample((("server", "db:1"), ("kind", "mysql")), "1")
    text = Sample((*LABELS, ("text", "select a from t where b = ?")), "1")
    joules = Sample((*LABELS, ("database", "shop")), "0.000000123", "1000.000")
    (resource,) = exported(
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


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (204, Outcome.SENT),
        (302, Outcome.REJECTED),
        (401, Outcome.REJECTED),
        (429, Outcome.FAILED),
        (503, Outcome.FAILED),
    ],
)
def test_what_an_answer_means(code: int, outcome: Outcome) -> None:
    with receiver() as other, receiver(code, Location=other.url, Retry_After="7") as receives:
        result = Poster(receives.url, {"Authorization": "secret"}).post(b"x", {})
    assert result.outcome is outcome
    assert result.wait_s == (7.0 if outcome is Outcome.FAILED else 0.0)
    assert not other.got, "credentials go to the configured address alone"


def test_receivers_that_do_not_answer_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_TIMEOUT_S", 0.2)
    monkeypatch.setattr(otlp, "_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert Poster(url, {}).post(b"x", {}).outcome is Outcome.FAILED
        assert Otlp(f"{url}/v1/metrics", {}, "db1").send([], 1.0).outcome is Outcome.FAILED


@dataclass
class Story:
    """A pusher whose sends have these outcomes, on a clock of its own."""

    outcomes: list[Outcome]
    now_s: float = 100.0
    sent: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.board, self.tally = Board(), Tally("x", 1.0)
        clocks = {"monotonic": lambda: self.now_s, "wall": lambda: self.now_s + 1e6}
        self.pusher = Pusher(self.board, self._send, 15.0, self.tally, **clocks)

    def _send(self, _families: object, unix_s: float) -> Result:
        self.sent.append(unix_s - 1e6)
        outcome = self.outcomes.pop(0) if self.outcomes else Outcome.SENT
        if outcome is Outcome.FAILED and len(self.sent) % 2:
            raise ValueError("of a library")
        return Result(outcome)

    def show(self, after_s: float) -> None:
        """A page, and what the pusher does until `after_s` later."""
        self.board.show([Family("q", "gauge", "", samples=[Sample((), "1")])], self.now_s, 60.0)
        end_s = self.now_s + after_s
        while self.now_s < end_s:
            self.now_s += 0.25
            self.pusher.step()


def test_pages_are_sent_in_step_with_their_times() -> None:
    story = Story([])
    for _ in range(7):
        story.show(10.0)
    assert story.sent == [100.0, 110.0, 130.0, 140.0, 160.0], "the newest, with its time"
    assert story.tally.counts() == {"sent": 5, "failed": 0, "rejected": 0, "replaced": 0}
    assert story.tally.last_s > 1e6


def test_a_failed_page_is_tried_again_with_growing_pauses_and_replaced_by_newer_ones() -> None:
    story = Story([Outcome.FAILED] * 12)
    for _ in range(60):
        story.show(10.0)
    counts = story.tally.counts()
    assert counts["failed"] == 12 and 0 < counts["replaced"] <= 12 and counts["sent"] > 5
    assert story.sent[-1] > 600
    retries = story.sent[:13]
    assert retries == sorted(retries)
    assert max(b - a for a, b in pairwise(retries)) <= MOST_RETRY_S + 10


def test_a_rejected_page_is_not_tried_again() -> None:
    story = Story([Outcome.REJECTED])
    story.show(60.0)
    assert story.tally.counts()["rejected"] == 1 and len(story.sent) == 1
    (pages, last) = families([story.tally])
    assert {dict(s.labels)["result"]: s.value for s in pages.samples}["rejected"] == "1"
    assert last.samples[0].value == "0.000"
    assert list(families([])) == []


def test_files_of_headers_are_for_us_alone_and_certificates_are_read(tmp_path: Path) -> None:
    with pytest.raises(QjouleError, match="no certificates"):
        Poster("https://127.0.0.1/", {}, "/etc/passwd")
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer x y\n\nX-Scope-OrgID:  7\n")
    file.chmod(0o640)
    with pytest.raises(UsageError, match="others may read it"):
        read_headers(str(file))
    file.chmod(0o600)
    assert read_headers(str(file)) == {"Authorization": "Bearer x y", "X-Scope-OrgID": "7"}
    for content in (b"no header", b"a: b\rc: d", b"\xff\xfe: x", b": x", b"a:\x00"):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="Name: value"):
            read_headers(str(file))
