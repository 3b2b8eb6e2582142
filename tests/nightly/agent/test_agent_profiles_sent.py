# SPDX-License-Identifier: Apache-2.0
"""An agent beside a real server, the program that sends its profiles, and a receiver of them."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import (
    ExportProfilesServiceRequest,
)

from otlp_receiver import Receiver, notes_of, of_otlp, program, receiver
from qjoule.engine.stacks import NO_SAMPLE
from qjoule_studies.servers.postgres import postgres_server
from servers.busy import busy
from tracing.agent import Agent, value

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(400)]

SORTED = "select max(p) from (select p from item order by p desc offset 10) s"
HASHED = "select count(md5(p::text)) from item"
TABLE = (
    "create table item as select (n::bigint * 7919) % 1000003 p from generate_series(1, 30000) n"
)
PROFILES = "/v1development/profiles"
#: Two whole minutes, a look each 15 s, and the start.
PATIENCE_S = 260.0


@contextmanager
def sending(agent: Agent, receiver: Receiver, patch: pytest.MonkeyPatch) -> Iterator[None]:
    patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url.removesuffix("/api"))
    patch.setenv("OTEL_PROFILES_EXPORTER", "otlp")
    with subprocess.Popen(program(7, f"http://{agent.target}/metrics")) as running:
        try:
            yield
        finally:
            running.kill()


def profiles_of(receiver: Receiver) -> list[bytes]:
    return [content for headers, content in list(receiver.got) if headers[":path"] == PROFILES]


def ended_unix_s(content: bytes) -> float:
    (of_resource,) = ExportProfilesServiceRequest.FromString(content).resource_profiles
    (profile, *_) = of_resource.scope_profiles[0].profiles
    return (int(profile.time_unix_nano) + int(profile.duration_nano)) / 1e9


def namer_of(agent: Agent) -> psutil.Process:
    """The process that names functions: the only one that may neither fork nor compute for long."""
    (namer,) = (process for process in agent.processes() if limits_of(process.pid) == ("0", "60"))
    return namer


def limits_of(pid: int) -> tuple[str, ...]:
    """The limits of a process: of processes (RLIMIT_NPROC) and of CPU time (s)."""
    text = Path(f"/proc/{pid}/limits").read_text()
    names = "processes", "cpu time"
    return tuple(re.findall(rf"^Max {name} +(\S+)", text, re.M)[0] for name in names)


def test_a_receiver_gets_the_joules_of_each_minute_by_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joules: dict[float, float] = {}  #: of all statements, by the Unix time of the page
    statements = [SORTED]  #: the last one is executed
    with (
        postgres_server() as server,
        busy(server, TABLE, lambda: statements[-1]),
        receiver() as receives,
    ):
        agent = Agent(tmp_path, server.pid, more="[stacks]\nhertz = 499\n")
        try:
            agent.started()
            with sending(agent, receives, monkeypatch):
                deadline_s = time.monotonic() + PATIENCE_S
                while len(profiles_of(receives)) < 2:
                    assert time.monotonic() < deadline_s, receives.got
                    page = agent.samples()
                    at = value(page, "qjoule_last_interval_timestamp_seconds") or 0.0
                    its = {"kind": "queries", "domain": "package"}
                    joules[at] = value(page, "qjoule_owner_joules_total", **its) or 0.0
                    if statements == [SORTED] and profiles_of(receives):
                        assert value(page, "qjoule_agent_resident_bytes", process="names")
                        namer_of(agent).kill()
                        statements.append(HASHED)
                    time.sleep(0.2)
            agent.stop()
        finally:
            agent.close()
    first, second = profiles_of(receives)
    began_s, ended_s = (
        min(joules, key=lambda at: abs(at - ended_unix_s(request))) for request in (first, second)
    )
    assert abs(ended_s - ended_unix_s(second)) < 0.01, "a page for each interval was read"
    energy = of_otlp(second)["energy"]
    total_nj = sum(map(sum, energy.values()))
    assert total_nj == pytest.approx((joules[ended_s] - joules[began_s]) * 1e9, abs=2)
    sampled_nj = sum(
        sum(values) for (frames, _), values in energy.items() if frames[-1] != NO_SAMPLE
    )
    share = f"{sampled_nj / total_nj:.1%} of {total_nj / 1e9:.6g} J are of statements that have"
    assert any(line.startswith(share) for line in notes_of(second)), notes_of(second)
    sort_nj = {True: 0, False: 0}
    for (frames, labels), values in of_otlp(first)["energy"].items():
        if "order by p" in frames[1].lower():
            its = dict(labels)
            assert its["db.system.name"] == "postgresql" and its["db.query.summary"]
            sort_nj[any(frame.startswith("Sort #") for frame in frames)] += sum(values)
    assert sort_nj[True] > sort_nj[False], "the statement sorts"
    note = "the process that reads servers' symbols has ended"
    assert [note in "\n".join(notes_of(request)) for request in (first, second)] == [False, True]
