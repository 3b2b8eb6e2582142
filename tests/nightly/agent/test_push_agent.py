# SPDX-License-Identifier: Apache-2.0
"""An agent that sends its metrics to a receiver of OTLP, and to one that is not there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from http_receiver import Receiver, receiver
from metrics_pages import Key
from tracing.agent import Agent, value
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


def test_a_receiver_has_the_joules_from_a_process_without_rights(tmp_path: Path) -> None:
    with receiver() as its, _sending(tmp_path, its.url) as agent:
        agent.until(lambda page: (_pages(page, "sent") or 0) > 2, "not sent")
        until(lambda: its.got)
        assert joules(its) > 0
        for one in agent.processes()[1:]:
            status = Path(f"/proc/{one.pid}/status").read_text()
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0
            assert fields["Seccomp"].strip() == "2", one.name()
            assert "0" not in fields["Uid"].split()


def test_without_its_receiver_the_agent_goes_on_and_says_so(tmp_path: Path) -> None:
    with _sending(tmp_path, "http://127.0.0.1:9/") as agent:
        page = agent.until(lambda page: bool(_pages(page, "failed")), "no failure is said")
        assert value(page, "qjoule_push_last_success_timestamp_seconds", to="otlp") == 0
        assert not _pages(page, "sent")
        agent.stop()


@contextmanager
def _sending(directory: Path, url: str) -> Iterator[Agent]:
    push = f'[push]\nevery_s = 1.0\notlp_endpoint = "{url}"\n'
    agent = Agent(directory, os.getpid(), more=push)
    try:
        yield agent
    finally:
        agent.close()


def _pages(page: Mapping[Key, float], result: str) -> float | None:
    return value(page, "qjoule_push_pages_total", to="otlp", result=result)
