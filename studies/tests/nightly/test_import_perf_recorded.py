# SPDX-License-Identifier: Apache-2.0
"""The law of `qjoule import perf`: a run recorded by both BPF and perf gives the same results.

Queries are counted alike, exactly. CPU time of a statement agrees within 3 % plus the possible cost
of a context switch per call. Joules agree within the two intervals. Perf is run as
`--print-commands` says.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from qjoule_studies.servers.process import DatabaseServer
from tracing.cpu_time import tolerance
from tracing.recording import Recorder, Run, attribute, qjoule

STARTS_S = 60.0
SECONDS = 120  #: at most
TRACEFS = Path("/sys/kernel/tracing")


@dataclass
class PerfRecording:
    """`data` and `options` of the import are set when the block has ended."""

    directory: Path
    script: str

    @property
    def data(self) -> Path:
        return self.directory / "qjoule-perf.data"

    def options(self) -> list[str]:
        """The options for the servers, as in the printed import command."""
        (line,) = (line for line in self.script.splitlines() if line.startswith("qjoule import"))
        arguments = line.split()
        return [w for at, w in enumerate(arguments) if "--server" in (w, arguments[at - 1])]


@contextmanager
def perf_recording(directory: Path, pid: int) -> Iterator[PerfRecording]:
    """Records the block with the printed script, without its last line (the import)."""
    printed = qjoule("import", "perf", "--print-commands", f"--pid={pid}", f"--seconds={SECONDS}")
    assert printed.returncode == 0, printed.stderr
    of = PerfRecording(directory, printed.stdout)
    was_mounted = TRACEFS.is_mount()
    lines = [line for line in of.script.splitlines() if not line.startswith("qjoule import")]
    process = subprocess.Popen(
        ["bash", "-e", "-c", "\n".join(lines)],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        workload = _workload(process)
        yield of
        workload.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=STARTS_S)
        assert of.data.exists(), stderr.decode(errors="replace")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stderr is not None
        process.stderr.close()
        _remove_probes(lines)
        if not was_mounted:  # others may use the name by now
            subprocess.run(["umount", str(TRACEFS)], capture_output=True, check=False)


def _workload(process: subprocess.Popen[bytes]) -> psutil.Process:
    """The `sleep` that perf runs once it records."""
    deadline = time.monotonic() + STARTS_S
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name() == "sleep":
                return child
        time.sleep(0.02)
    raise AssertionError("perf did not start")


def _remove_probes(lines: list[str]) -> None:
    """Removes perf's probes, even if the script that set them was killed."""
    events = TRACEFS / "uprobe_events"
    if not events.exists():
        return
    for line in lines:
        if line.startswith("echo -:"):
            name = line.split()[1].removeprefix("-:")
            if name in events.read_text():
                file = os.open(events, os.O_WRONLY | os.O_APPEND)
                os.write(file, f"-:{name}\n".encode())
                os.close(file)


pytestmark = [
    pytest.mark.root,
    pytest.mark.server,
    pytest.mark.timeout(180),
    pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed (linux-perf)"),
]

ENERGY, FULL_W = "estimated:5,10,20,40", 40
#: For each call: a switch to its thread and one away, and the entry of both tracers' probes, which
#: one tracer counts before the query and the other within it.
EACH_CALL_NS = 30_000
SETTLED_S = 0.3  #: a server may still have to return from a statement that it has answered


@dataclass(frozen=True)
class Both:
    """One run, recorded twice; `attributed` by recorder."""

    bpf: Run
    perf: Run
    attributed: dict[str, dict[str, Any]]

    def rows(self, who: str) -> dict[str, dict[str, Any]]:
        """Rows with calls, by shape."""
        rows = self.attributed[who]["rows"]
        return {row["shape"]: row for row in rows if row.get("calls")}


def _record_both(directory: Path, server: DatabaseServer, work: Any) -> Both:
    bpf, perf = directory / "bpf", directory / "perf"
    # The perf recording has CPU time alone, so that is what both runs are weighed by.
    options = ("--attach", "symbol", "--no-counters", "--ring-mb", "64", "--energy", ENERGY)
    recorder = Recorder(bpf, "--pid", str(server.pid), *options)
    try:
        recorder.attached()
        with perf_recording(directory, server.pid) as recorded:
            work()
            time.sleep(SETTLED_S)
        assert recorder.stop() == 0, recorder.messages
    finally:
        recorder.end()
    imported = qjoule(
        *("import", "perf", str(recorded.data), "-o", str(perf), "--energy", ENERGY),
        *recorded.options(),
    )
    assert imported.returncode == 0, imported.stderr
    attributed = {"bpf": attribute(bpf), "perf": attribute(perf)}
    return Both(Run(bpf), Run(perf), attributed)


@pytest.fixture(scope="module")
def mysql_run(mariadb: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Both:
    def work() -> None:
        with (
            closing(mariadb.connect(ssl_disabled=True)) as connection,
            connection.cursor() as cursor,
        ):
            for value in range(300):
                cursor.execute(f"select {value} as m_short, 'it''s \n two lines' as text")
                cursor.execute(f"select benchmark({20_000 + value}, sha2('x', 256)) as m_long")
            cursor.execute("select 1 as m_quoted, 'e' as `u`")

    return _record_both(tmp_path_factory.mktemp("import-mysql"), mariadb, work)


@pytest.fixture(scope="module")
def postgres_run(postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Both:
    def work() -> None:
        with closing(postgres.connect()) as connection, connection.cursor() as cursor:
            for value in range(200):
                cursor.execute("select %s as m_short", (value,))
                cursor.execute(
                    "select count(*) as m_long from generate_series(1, 40000) g where g %% 7 = %s",
                    (value % 7,),
                )

    return _record_both(tmp_path_factory.mktemp("import-pg"), postgres, work)


@pytest.fixture(params=["mysql_run", "postgres_run"])
def both(request: pytest.FixtureRequest) -> Both:
    run: Both = request.getfixturevalue(request.param)
    return run


def _marked(counts: Any) -> dict[str, int]:
    return {text: calls for text, calls in counts.items() if "m_" in text}


def test_queries_are_counted_alike(both: Both) -> None:
    by_bpf, by_perf = _marked(both.bpf.executions()), _marked(both.perf.executions())
    assert by_bpf == by_perf
    assert len(by_perf) >= 2 and min(by_perf.values()) >= 1
    assert set(both.perf.queries["attach_mode"].dropna()) == {"symbol"}


def test_cpu_time_of_each_statement_agrees(both: Both) -> None:
    by_bpf, by_perf = both.rows("bpf"), both.rows("perf")
    for shape, row in by_perf.items():
        if "m_" not in shape:
            continue
        other = by_bpf[shape]
        allowed_ns = tolerance() * other["cpu_ns"] + EACH_CALL_NS * row["calls"]
        assert row["cpu_ns"] == pytest.approx(other["cpu_ns"], abs=allowed_ns), shape
    longest = [shape for shape in by_perf if "m_long" in shape]
    assert by_perf[longest[0]]["cpu_ns"] > 10 * EACH_CALL_NS * by_perf[longest[0]]["calls"]
