# SPDX-License-Identifier: Apache-2.0
"""An agent beside a real server, the program that sends its sampled queries, and a receiver:
each has its own trace, its joules, and what the server knows of its client.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otlp_receiver import Receiver, program, receiver
from qjoule_studies.servers.postgres import postgres_server
from servers.busy import busy
from tracing.agent import Agent

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(300)]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TEXT = "select count(md5(n::text)) from generate_series(1, 20000) n"
PATIENCE_S = 120.0


def events(receiver: Receiver) -> list[Any]:
    records: list[Any] = []
    for headers, content in list(receiver.got):
        if headers[":path"] == "/v1/logs":
            request = ExportLogsServiceRequest.FromString(content)
            for of_resource in request.resource_logs:
                records += of_resource.scope_logs[0].log_records
    return [record for record in records if record.event_name == "db.server.query_sample"]


def attributes(record: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in record.attributes
    }


def exemplars(receiver: Receiver) -> set[str]:
    """The traces of the exemplars."""
    requests = [
        ExportMetricsServiceRequest.FromString(content)
        for headers, content in receiver.got
        if headers[":path"] == "/v1/metrics"
    ]
    metrics = requests[-1].resource_metrics[0].scope_metrics[0].metrics
    latencies = [metric for metric in metrics if metric.name == "qjoule.query.duration"]
    points = [point for metric in latencies for point in metric.histogram.data_points]
    return {exemplar.trace_id.hex() for point in points for exemplar in point.exemplars}


def test_drawn_queries_are_sent_with_trace_and_joules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = itertools.count(1)

    def statement() -> str:
        """The statement as another span of the trace."""
        return f"{TEXT} /*app='shop',traceparent='00-{TRACE}-{next(spans):016x}-01'*/"

    with postgres_server() as server, busy(server, statement), receiver() as receives:
        agent = Agent(tmp_path, server.pid, tag="app", show_samples=True, more="samples = 1000\n")
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
    samples = [
        event for event in events(receives) if "md5" in attributes(event).get("db.query.text", "")
    ]
    assert len(samples) >= 20
    sent = [int.from_bytes(event.span_id, "big") for event in samples]
    assert {event.trace_id.hex() for event in samples} == {TRACE}
    assert len(set(sent)) == len(sent), "each query is sent once"
    assert set(sent) <= set(range(1, next(spans)))
    for sample in map(attributes, samples):
        assert sample["db.system.name"] == "postgresql"
        assert sample["qjoule.grade"] in ("estimated", "measured")
        # Waking up, and what is done after the reply, is work of the query, too.
        assert 0 < sample["qjoule.query.cpu.time"] <= sample["qjoule.query.duration"] + 0.01
        assert sample["user.name"]
        if "qjoule.query.energy" in sample:
            assert sample["qjoule.query.energy"] > 0 and sample["qjoule.query.energy.error"] >= 0
    assert any("qjoule.query.energy" in attributes(event) for event in samples)
    assert exemplars(receives) == {TRACE}
