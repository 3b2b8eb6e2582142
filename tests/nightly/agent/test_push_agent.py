# SPDX-License-Identifier: Apache-2.0
"""The program that sends an agent's metrics to a receiver of OTLP, as another user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from http_receiver import Receiver, receiver
from tracing.agent import Agent
from waiting import until

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


def joules(its: Receiver) -> float:
    """The energy of the package in the last request."""
    found = ExportMetricsServiceRequest()
    found.ParseFromString(its.got[-1][1])
    (scope,) = found.resource_metrics[0].scope_metrics
    (energy,) = (one for one in scope.metrics if one.name == "hw.energy")
    total = 0.0
    for point in energy.sum.data_points:
        if any(one.value.string_value == "package" for one in point.attributes):
            total += point.as_double
    return total


def test_a_receiver_has_the_joules_from_another_user_than_the_agents(tmp_path: Path) -> None:
    agent = Agent(tmp_path, os.getpid())
    words = [sys.executable, "-m", "qjoule.push", f"http://{agent.target}/metrics"]
    try:
        agent.started()
        with receiver() as its:
            environment = {
                **os.environ,
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": its.url,
                "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            }
            user = {"user": 54010, "group": 54010, "extra_groups": []}
            with subprocess.Popen(words, env=environment, **user) as pushing:  # type: ignore[call-overload]
                try:
                    until(lambda: its.got and joules(its) > 0)
                finally:
                    pushing.kill()
    finally:
        agent.close()
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "not as root" in refused.stderr
