# SPDX-License-Identifier: Apache-2.0
"""Advice on real servers: a planted fault is the first advice, and without one there is none."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qjoule_studies.servers.process import DatabaseServer
from servers.newer import RELEASES
from tracing.planted_faults import FAULTS, Faults
from tracing.recording import qjoule, recording
from tracing.releases import running

pytestmark = [pytest.mark.root, pytest.mark.server]
RUNS, LEAST = 10, 9
OPTIONS = ("--stacks", "997", "--energy", "estimated:5,8,12,20")
SERVERS = pytest.mark.parametrize(
    "name", ["mariadb", "postgres", pytest.param("mysql", marks=pytest.mark.versions)]
)


@pytest.fixture
def server(name: str, request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """The server of this name; MySQL comes from Debian's newer suites."""
    if name == "mysql":
        (release,) = (release_known for release_known in RELEASES if release_known.server == name)
        with running(release) as started:
            yield started
    else:
        yield request.getfixturevalue(name)


def advised(
    server: DatabaseServer, load: Callable[[Faults], None], directory: Path
) -> list[list[str]]:
    """The kinds of advice on each of the recordings of this load, the first one first."""
    root = f"/proc/{server.pid}/root"
    faults = Faults(server)
    faults.tables()
    advice_kinds = []
    for run in range(RUNS):
        trace = directory / str(run)
        with recording(trace, "--pid", str(server.pid), *OPTIONS):
            load(faults)
        done = qjoule("advise", str(trace), "--json", "--symfs", root)
        assert done.returncode == 0, done.stderr
        advice_kinds.append([advice["kind"] for advice in json.loads(done.stdout)["advice"]])
    return advice_kinds


@SERVERS
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_the_first_advice(
    name: str, fault: str, server: DatabaseServer, tmp_path: Path
) -> None:
    if name != "postgres" and fault == "parallel":
        pytest.skip("it has no parallel plans")
    advice_kinds = advised(server, FAULTS[fault], tmp_path)
    first = Counter(kinds[0] if kinds else "" for kinds in advice_kinds)
    print(f"{name}, {fault}: first of {RUNS} runs: {dict(first)}")
    assert first[fault] >= LEAST, advice_kinds


@SERVERS
def test_without_a_fault_nothing_is_advised(
    name: str, server: DatabaseServer, tmp_path: Path
) -> None:
    advice_kinds = advised(server, Faults.clean, tmp_path)
    print(f"{name}, clean: {advice_kinds}")
    assert advice_kinds == [[]] * RUNS
