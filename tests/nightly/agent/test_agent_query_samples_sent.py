# SPDX-License-Identifier: Apache-2.0
"""An agent beside a real server, the program that sends its drawn queries, and a receiver of them:
each has its own trace, its joules, and what the server knows of its client.
"""

from __future__ import annotations

import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otlp_receiver import Receiver, program, receiver
from qjoule_studies.servers.postgres import postgres_server
from qjoule_studies.servers.process import DatabaseServer
from tracing.agent import Agent

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(300)]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TEXT = "select count(md5(n::text)) from generate_series(1, 20000) n"
PATIENCE_S = 120.0


class Work:
    """Executes the statement over and over, each time as another span of the trace."""

    def __init__(self, server: DatabaseServer) -> None:
        self.spans = 0
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with closing(self._server.connect()) as connection, connection.cursor() as cursor:
            while not self._ended.is_set():
                self.spans += 1
                ids = f"00-{TRACE}-{self.spans:016x}-01"
                cursor.execute(f"{TEXT} /*app='shop',traceparent='{ids}'*/")
                cursor.fetchall()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


def events(got: Receiver) -> list[Any]:
    found: list[Any] = []
    for headers, content in list(got.got):
        if headers[":path"] == "/v1/logs":
            request = ExportLogsServiceRequest.FromString(content)
            for of_resource in request.resource_logs:
                found += of_resource.scope_logs[0].log_records
    return [one for one in found if one.event_name == "db.server.query_sample"]


def attributes(record: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in record.attributes}


def exemplars(got: Receiver) -> set[str]:
    """The traces of the exemplars."""
    requests = [
        ExportMetricsServiceRequest.FromString(content)
        for headers, content in got.got
        if headers[":path"] == "/v1/metrics"
    ]
    metrics = requests[-1].resource_metrics[0].scope_metrics[0].metrics
    latencies = [one for one in metrics if one.name == "qjoule.query.duration"]
    points = [point for one in latencies for point in one.histogram.data_points]
    return {one.trace_id.hex() for point in points for one in point.exemplars}


def test_drawn_queries_are_sent_with_trace_and_joules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres_server() as server, closing(Work(server)) as work, receiver() as receives:
        agent = Agent(tmp_path, server.pid, tag="app", drawn=True, more="samples = 1000\n")
        try:
            agent.started()
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receives.url.removesuffix("/api"))
            monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "2000")
            monkeypatch.setenv("OTEL_LOGS_EXPORTER", "otlp")
            with subprocess.Popen(program(7, f"http://{agent.target}/metrics")) as running:
                deadline_s = time.monotonic() + PATIENCE_S
                while len(events(receives)) < 20 and time.monotonic() < deadline_s:
                    time.sleep(0.2)
                running.kill()
            agent.stop()
        finally:
            agent.close()
    found = [one for one in events(receives) if "md5" in attributes(one).get("db.query.text", "")]
    assert len(found) >= 20
    spans = [int.from_bytes(one.span_id, "big") for one in found]
    assert {one.trace_id.hex() for one in found} == {TRACE}
    assert len(set(spans)) == len(spans), "each query is sent once"
    assert set(spans) <= set(range(1, work.spans + 1))
    for one in map(attributes, found):
        assert one["db.system.name"] == "postgresql"
        assert one["qjoule.grade"] in ("estimated", "measured")
        # Waking up, and what is done after the reply, is work of the query, too.
        assert 0 < one["qjoule.query.cpu.time"] <= one["qjoule.query.duration"] + 0.01
        assert one["user.name"]
        if "qjoule.query.energy" in one:
            assert one["qjoule.query.energy"] > 0 and one["qjoule.query.energy.error"] >= 0
    assert any("qjoule.query.energy" in attributes(one) for one in found)
    assert exemplars(receives) == {TRACE}
