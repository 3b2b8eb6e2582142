# SPDX-License-Identifier: Apache-2.0
"""A study that records a real Redis, is killed, and is continued."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import psutil
import pytest

from bench_process import NAME, Bench
from qjoule.report.study_runs import read_runs
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import Run
from waiting import until

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

OPERATIONS = 3000
PLAN = """\
workload = "{workload}"
target.pid = {pid}
options.operations = {operations}
factors.command = ["set", "get"]
replications = 2
control = {{last = 2, tries = 2, pause_s = 0}}
record.energy = "estimated:10,15,30,40"
"""


def clients_and_recorders(directory: Path) -> list[psutil.Process]:
    """A study's clients and recorders: recorders name its traces, and run the clients."""
    processes = []
    for process in psutil.process_iter():
        try:
            if any(str(directory) in word for word in process.cmdline()[2:]):
                processes += [process, *process.children(recursive=True)]
        except psutil.Error:
            continue
    return processes


@pytest.fixture(scope="module")
def killed(redis: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A study of four runs, killed during the second one's recording, and then continued."""
    bench = Bench(tmp_path_factory.mktemp("bench"))
    bench.plan.write_text(PLAN.format(workload=NAME, pid=redis.pid, operations=OPERATIONS))
    process = bench.start()
    trace = bench.study / "runs" / "0002.qjoule"
    until(lambda: trace.exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    left = clients_and_recorders(bench.study)
    process.kill()
    process.communicate()
    assert left
    _, alive = psutil.wait_procs(left, timeout=30)
    assert not alive
    assert len(bench.runs()) == 1
    (trace / "of-the-first-try").touch()
    code, messages = bench.run()
    assert code == 0, messages
    assert "1 runs are made already" in messages
    assert not (trace / "of-the-first-try").exists()
    return bench


@pytest.fixture(scope="module")
def table(killed: Bench) -> pd.DataFrame:
    return read_runs(killed.study)


def test_each_run_is_a_trace_of_its_own(killed: Bench, table: pd.DataFrame) -> None:
    assert list(table["status"]) == ["done"] * 4
    for trace, command in zip(table["trace"], table["factor:command"], strict=True):
        run = Run(killed.study / trace)
        assert run.trace.complete
        assert run.executions()[f"{command.upper()} key:?"] == OPERATIONS
        assert Path(killed.study / trace).with_suffix(".json").exists()


def test_joules_are_those_of_the_workloads_time(killed: Bench, table: pd.DataFrame) -> None:
    """The power of the estimate's curve is known: 10 W at rest, 40 W with every CPU busy."""
    assert set(table["grade"]) == {"estimated"}
    assert table["power_w"].between(10, 40).all()
    seconds = table["energy_j"] / table["power_w"]
    assert (seconds >= table["wall_s"]).all()
    # The trace, but not the workload's time, includes the start of the client: some tenths of a
    # second of Python.
    traces = [Run(killed.study / trace).trace for trace in table["trace"]]
    assert (seconds < [(trace.end_ns - trace.begin_ns) / 1e9 - 0.1 for trace in traces]).all()
    served = table["queries_j"] + table["background_j"]
    assert (served > 0).all()
    assert (served < table["energy_j"] - table["idle_j"]).all()
    assert (table["j_per_operation"] * OPERATIONS).to_list() == pytest.approx(served.to_list())
    assert (table["j_per_operation_low"] < table["j_per_operation"]).all()
    assert (table["j_per_operation_high"] > table["j_per_operation"]).all()
    assert (table["server_cpu_s"] > 0).all()
    assert (table["server_cpu_s"] < seconds).all()
