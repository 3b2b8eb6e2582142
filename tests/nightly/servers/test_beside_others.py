# SPDX-License-Identifier: Apache-2.0
"""Several recorders on one server: each is exact, and none switches off what another attached."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from exclusive.test_faults_end import bpf_ids, nothing_is_attached
from qjoule_studies.servers.process import DatabaseServer
from tracing.live_top import live_top
from tracing.recording import Recorder, Run

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(180)]

STATEMENTS = 400  #: of each round
ROUNDS = ("all", "without_second", "without_record")
ATTACH_MODES = ("socket", "symbol")


def work(server: DatabaseServer, word: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for number in range(STATEMENTS):
            cursor.execute(f"select {number} as beside_{word}")


def seen(rows: Iterator[dict[str, Any]]) -> dict[str, int]:
    """Calls of the rounds' statements, by round."""
    calls = dict.fromkeys(ROUNDS, 0)
    for row in rows:
        for word in ROUNDS:
            if row["shape"] == f"select ? as beside_{word}":
                calls[word] += row["calls"]
    return calls


def of_top(snapshots: list[dict[str, Any]]) -> dict[str, int]:
    return seen(row for snapshot in snapshots for row in snapshot["interval"]["rows"])


def has_all(word: str) -> Callable[[list[dict[str, Any]]], bool]:
    """True once a view shows all statements of a round. It must show no more later."""
    return lambda snapshots: of_top(snapshots)[word] >= STATEMENTS


def ended(process: Any) -> None:
    """Ends a recorder: all of its processes and programs go."""
    family, ids = psutil.Process(process.pid).children(recursive=True), bpf_ids(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert not psutil.wait_procs(family, timeout=60)[1]
    nothing_is_attached(ids)


@pytest.mark.parametrize("attach_mode", ATTACH_MODES)
def test_top_beside_record_and_a_second_top(
    attach_mode: str, mariadb: DatabaseServer, tmp_path: Path
) -> None:
    options = ("--pid", str(mariadb.pid), "--attach", attach_mode, "--energy", "none")
    with ExitStack() as stack:
        first = stack.enter_context(live_top(*options))
        recorder = Recorder(tmp_path / "t", *options)
        stack.callback(recorder.end)
        recorder.attached()
        second = stack.enter_context(live_top(*options))
        work(mariadb, "all")
        second.until(has_all("all"))
        ended(second.process)
        work(mariadb, "without_second")
        ended(recorder.process)
        work(mariadb, "without_record")
        first.until(has_all("without_record"))
        ended(first.process)
    assert of_top(first.snapshots) == dict.fromkeys(ROUNDS, STATEMENTS)
    assert of_top(second.snapshots) == {"all": STATEMENTS, "without_second": 0, "without_record": 0}
    run = Run(tmp_path / "t")
    assert run.loss == {}
    counted = {word: run.executions()[f"select ? as beside_{word}"] for word in ROUNDS}
    assert counted == {"all": STATEMENTS, "without_second": STATEMENTS, "without_record": 0}
