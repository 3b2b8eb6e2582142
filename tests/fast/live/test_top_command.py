# SPDX-License-Identifier: Apache-2.0
"""`qjoule top` without a terminal: batches from a replayed trace, and bad usage."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import fake_tracer
from fake_source import snapshot
from qjoule.errors import QjouleError
from qjoule.reporters.live_export import export
from qjoule.reporters.live_state import ViewState
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace.meta import Meta
from qjoule.trace.writer import TraceWriter


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "small.qjoule"
    stream = Stream(io.BytesIO(b"".join(fake_tracer.traffic(2.0, per_second=500))))
    record(stream, TraceWriter(path), fake_tracer.fingerprint, Meta(host="db1"))
    return path


def top(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "qjoule", "top", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


def test_json_is_a_document_per_line(trace: Path) -> None:
    done = top("--replay", str(trace), "-b", "-d", "0.5", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert [document["ended"] for document in documents] == [False, False, False, True]
    for document in documents:
        assert document["schema"] == "qjoule.top/1"
        interval = document["interval"]
        assert interval["schema"] == "qjoule.attribution/1"
        parts = dict(interval["totals_j"])
        assert parts.pop("measured") == pytest.approx(sum(parts.values()))
        assert interval["trace"]["duration_s"] == pytest.approx(0.5)
        assert len(interval["rows"]) == 5


def test_csv_has_one_header(trace: Path) -> None:
    done = top("--replay", str(trace), "-b", "-n", "2", "-d", "0.5", "--csv", "--by", "server")
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert {row["elapsed_s"] for row in rows} == {"0.5", "1.0"}
    assert {row["grade"] for row in rows} == {"simulated"}
    assert sum(1 for line in done.stdout.splitlines() if line.startswith("elapsed_s")) == 1


def test_tables(trace: Path) -> None:
    done = top("--replay", str(trace), "-b", "-n", "1", "--limit", "2", "--idle", "even")
    assert done.returncode == 0
    assert "TOTAL simulated" in done.stdout
    assert "other queries (3 groups)" in done.stdout
    assert "spread evenly" in done.stdout
    assert "\x1b" not in done.stdout


def test_an_encoding_that_lacks_characters(trace: Path) -> None:
    done = top("--replay", str(trace), "-b", "-n", "1", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "TOTAL simulated" in done.stdout
    assert "?" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--json",), "need -b"),
        (("-b", "--json", "--csv"), "not both"),
        ((), "needs a terminal"),
        (("-b", "--speed", "2"), "--replay"),
        (("-b", "--by", "user"), "record a trace"),
        (("-b", "--by", "nonsense"), "cannot group by"),
        (("-b", "--replay", "x", "--pid", "1"), "live tracing"),
        (("-b", "--replay", "x", "--generic"), "live tracing"),
    ],
)
def test_usage_errors_are_one_line(arguments: tuple[str, ...], words: str) -> None:
    done = top(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_directory_that_is_no_trace_is_one_line(tmp_path: Path) -> None:
    done = top("-b", "--replay", str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert "is not a trace" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_leaves_early_is_no_traceback(trace: Path) -> None:
    command = [sys.executable, "-m", "qjoule", "top", "--replay", str(trace), "-b", "-d", "0.1"]
    with subprocess.Popen(
        [*command, "--speed", "4", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["schema"] == "qjoule.top/1"
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == 1


def test_export_is_the_screen_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state = ViewState()
    state.accept(snapshot())
    for key in ("/", *"delete"):
        state.press(key, key)
    state.press("enter", None)
    state.press("enter", None)
    path = Path(export(state))
    written = json.loads(path.read_text())
    assert path.stat().st_mode & 0o077 == 0
    assert [row["shape"].split()[0] for row in written["interval"]["rows"]] == ["DELETE"]
    assert written["view"]["filter"] == "delete"
    assert written["view"]["selected"]["history_w"]
    json.loads(Path(export(ViewState())).read_text())


def test_export_goes_elsewhere_where_the_directory_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody can create files in /proc, not even root.
    monkeypatch.chdir("/proc")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = Path(export(ViewState()))
    assert path.parent == tmp_path
    monkeypatch.setattr(tempfile, "tempdir", "/proc/sys")
    with pytest.raises(QjouleError, match="/proc/sys/qjoule-top-"):
        export(ViewState())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_where_a_script_started_it_in_the_background(
    trace: Path, number: signal.Signals
) -> None:
    """A shell without job control has background commands ignore SIGINT."""
    command = [sys.executable, "-m", "qjoule", "top", "--replay", str(trace), "-b"]
    with subprocess.Popen(
        ["env", "--ignore-signal=INT", *command, "-d", "0.1", "--speed", "0.1", "--csv"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("elapsed_s,")
        process.send_signal(number)
        assert process.wait(10) == 0, process.stderr.read()
        assert process.stderr.read() == ""
