# SPDX-License-Identifier: Apache-2.0
"""What is sent to receivers, decoded again, and what becomes of pages that were not taken."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from http_receiver import receiver
from metrics_pages import snapshots
from qjoule.errors import UsageError
from qjoule.metrics.board import Board
from qjoule.metrics.collected import of_counters
from qjoule.metrics.counters import Counters, Limits
from qjoule.metrics.families import EDGES, Family, Sample
from qjoule.metrics.interval import interval_of
from qjoule.push import otlp
from qjoule.push.header_file import read_headers
from qjoule.push.otlp import Otlp
from qjoule.push.pusher import MOST_RETRY_S, Pusher, Tally, families


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


def exported(*given: Family) -> Any:
    with receiver() as receives:
        sender = Otlp(receives.url, {"X-Scope": "a"}, "db1")
        assert sender.send(as_read(*given), 1234.5)
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


@pytest.mark.parametrize("code", [307, 401, 503])
def test_a_page_that_is_not_taken_has_failed(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "_TIMEOUT_S", 0.3)
    with receiver() as other, receiver(code, Location=other.url) as receives:
        assert not Otlp(receives.url, {"Authorization": "secret"}, "db1").send([], 1.0)
    assert not other.got, "credentials go to the configured address alone"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert not Otlp(url, {}, "db1").send([], 1.0)


@dataclass
class Story:
    """A pusher whose first sends fail, on a clock of its own."""

    failures: int = 0
    now_s: float = 100.0
    sent: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.board, self.tally = Board(), Tally("x", 1.0)
        clocks = {"monotonic": lambda: self.now_s, "wall": lambda: self.now_s + 1e6}
        self.pusher = Pusher(self.board, self._send, 15.0, self.tally, **clocks)

    def _send(self, _families: object, unix_s: float) -> bool:
        self.sent.append(unix_s - 1e6)
        if len(self.sent) <= self.failures and len(self.sent) % 2:
            raise ValueError("of a library")
        return len(self.sent) > self.failures

    def show(self, after_s: float) -> None:
        """A page, and what the pusher does until `after_s` later."""
        self.board.show([Family("q", "gauge", "", samples=[Sample((), "1")])], self.now_s, 60.0)
        end_s = self.now_s + after_s
        while self.now_s < end_s:
            self.now_s += 0.25
            self.pusher.step()


def test_pages_are_sent_in_step_with_their_times() -> None:
    story = Story()
    for _ in range(7):
        story.show(10.0)
    assert story.sent == [100.0, 110.0, 130.0, 140.0, 160.0], "the newest, with its time"
    assert story.tally.counts() == {"sent": 5, "failed": 0, "replaced": 0}
    assert story.tally.last_s > 1e6


def test_a_failed_page_is_tried_again_with_growing_pauses_and_replaced_by_newer_ones() -> None:
    story = Story(failures=12)
    for _ in range(60):
        story.show(10.0)
    counts = story.tally.counts()
    assert counts["failed"] == 12 and 0 < counts["replaced"] <= 12 and counts["sent"] > 5
    assert story.sent[-1] > 600
    retries = story.sent[:13]
    assert retries == sorted(retries)
    assert max(b - a for a, b in pairwise(retries)) <= MOST_RETRY_S + 10
    pages, last = families([story.tally])
    assert {dict(s.labels)["result"]: s.value for s in pages.samples}["failed"] == "12"
    assert float(last.samples[0].value) > 1e6


def test_files_of_headers_are_for_us_alone(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer x y\n\nX-Scope-OrgID:  7\n")
    file.chmod(0o640)
    with pytest.raises(UsageError, match="others may read it"):
        read_headers(str(file))
    file.chmod(0o600)
    assert read_headers(str(file)) == {"Authorization": "Bearer x y", "X-Scope-OrgID": "7"}
    for content in (b"no header", b"a: b\rc: d", b"\xff\xfe: x"):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="Name: value"):
            read_headers(str(file))
