# SPDX-License-Identifier: Apache-2.0
"""`qjoule top` without a terminal: batches, exports, bad usage, and the directory of a trace.
Also: the view in textual.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from textual.pilot import Pilot

import fake_tracer
from fake_attribution import FakeSource, snapshot, typical
from qjoule.cli import cli
from qjoule.errors import QjouleError, UsageError
from qjoule.model.call_outcomes import Waits
from qjoule.reporters.live_export import csv_lines, export
from qjoule.reporters.live_state import ViewState
from qjoule.reporters.live_view import Canvas, LiveView
from qjoule.session.directory import inside
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream
from qjoule.stream.record import record
from qjoule.trace.meta import Meta
from qjoule.trace.writer import TraceWriter


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "small.qjoule"
    stream = Stream(io.BytesIO(b"".join(fake_tracer.traffic(2.0, per_second=500))))
    record(stream, TraceWriter(path), fake_tracer.context(Meta(host="db1")))
    return path


def top(
    *arguments: str, user: int | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "qjoule", "top", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        timeout=60,
        user=user,
    )


@pytest.mark.parametrize("how", ["closed", "stopped"])
def test_the_view_ends_without_its_terminal(trace: Path, how: str) -> None:
    """A closed terminal, whose hangup does not reach it; SIGTERM where nothing takes the output."""
    ours, terminal = os.openpty()
    arguments = ["top", "--replay", str(trace), "--speed", "0.1", "-d", "0.1"]
    command = [sys.executable, "-m", "qjoule", *arguments]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    with subprocess.Popen(command, start_new_session=True, **streams) as view:  # type: ignore[call-overload]
        try:
            shown = b""
            while b"TOTAL" not in shown:
                shown += os.read(ours, 4096)
            if how == "stopped":
                termios.tcflow(terminal, termios.TCOOFF)
                view.terminate()
            os.close(terminal)
            if how == "closed":
                os.close(ours)
            assert view.wait(10) == 0
        finally:
            view.kill()
    if how == "stopped":
        os.close(ours)


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
        recorded = [row for row in interval["rows"] if "waits_latency_ns" in row]
        assert len(recorded) == 4
        for row in recorded:
            waits_ns = sum(ns for name, ns in row.items() if re.fullmatch("wait_.*_ns", name))
            assert row["ran_ns"] + waits_ns == row["waits_latency_ns"] > 0


def test_csv_has_columns_of_waits_and_stolen_time_before_any_is_known() -> None:
    first, later = typical(), typical()
    waits, helpers = Waits(90, 10, 50, 0, 0, 20, 0), Waits(80, 0, 0, 0, 0, 0, 30)
    row = replace(later.rows[0], waits=waits, helpers=helpers, stolen_ns=7)
    later = replace(later, rows=(row,))
    source = FakeSource(Snapshot(first, first, 1.0), Snapshot(later, later, 2.0, ended=True))
    text = "".join(csv_lines(source, Controls(), None))
    lines = [line for line in csv.DictReader(io.StringIO(text)) if line["kind"] == "queries"]
    for name, value in (("wait_lock_ns", "50"), ("helpers_ran_ns", "50"), ("stolen_ns", "7")):
        assert [line[name] for line in lines] == [""] * len(first.rows) + [value]


def test_tables_are_plain_text_in_any_encoding(trace: Path) -> None:
    options: tuple[str, ...] = ("-b", "-n", "1", "--limit", "2", "--idle", "even")
    with tempfile.TemporaryDirectory() as directory:
        options = ("--replay", str(shutil.copytree(trace, f"{directory}/t")), *options)
        subprocess.run(["chmod", "-R", "a+rX", directory], check=True)
        # Root's Python takes nothing from the environment.
        ordinary = 54001 if os.geteuid() == 0 else None
        done = top(*options, user=ordinary, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    for phrase in ("TOTAL simulated", "other queries (3 groups)", "spread evenly", "?"):
        assert phrase in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--json",), "need -b"),
        (("-b", "--json", "--csv"), "not both"),
        ((), "needs a terminal"),
        (("-b", "--speed", "2"), "--replay"),
        (("-b", "--by", "nonsense"), "cannot group by"),
        (("-b", "--where", "tag:tenant=3"), "--replay"),
        (("-b", "--replay", "x", "--pid", "1"), "live tracing"),
        (("-b", "--replay", "x", "--rung", "symbol"), "live tracing"),
        (("-b", "--replay", "x", "--stacks"), "--stacks is for the screen"),
        (("--via", "ssh db1", "-b", "--stacks=99"), "use record --stacks"),
        (("-b", "--replay", "/nothing"), "is not a trace"),
        (("-b",), "tracing needs root"),
    ],
)
def test_errors_are_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(cli, ["top", *arguments])
    assert isinstance(result.exception, (QjouleError, UsageError)) or result.exit_code == 2
    assert message in str(result.exception) + result.output


def test_an_export_is_the_screen_in_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = ViewState()
    state.accept(snapshot())
    for key in ("/", *"delete", "enter", "enter"):
        state.press(key, key if len(key) == 1 else None)
    path = Path(export(state))
    written = json.loads(path.read_text())
    assert path.stat().st_mode & 0o077 == 0
    assert [row["shape"].split()[0] for row in written["interval"]["rows"]] == ["DELETE"]
    assert written["view"]["filter"] == "delete"
    assert written["view"]["selected"]["history_w"]
    monkeypatch.chdir("/proc")  # nobody can create files there, not even root
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert Path(export(ViewState())).parent == tmp_path


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory away")


@as_root
@pytest.mark.parametrize(("existed", "written"), [(False, False), (True, False), (False, True)])
def test_a_directory_goes_only_if_the_recording_made_it_and_wrote_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existed: bool, written: bool
) -> None:
    monkeypatch.chdir(tmp_path)  # and back afterwards
    if existed:
        (tmp_path / "t").mkdir()
    with pytest.raises(ValueError, match="refused"), inside(tmp_path / "t"):
        if written:
            Path("meta.json").write_text("{}")
        raise ValueError("refused")
    assert (tmp_path / "t").exists() == (existed or written)
    assert (tmp_path / "t/meta.json").exists() == written


@as_root
@pytest.mark.parametrize(("name", "message"), [(".", "not empty"), ("precious", "is no directory")])
def test_what_is_in_use_is_refused_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").write_text("data")
    with pytest.raises(QjouleError, match=message), inside(tmp_path / name):
        pytest.fail("it began")
    assert (tmp_path / "precious").read_text() == "data"


# ---- the live view in textual, with a source that yields what the test puts in -------------------


def text(app: LiveView) -> str:
    canvas = app.query_one(Canvas)
    return "\n".join(canvas.render_line(y).text for y in range(canvas.size.height))


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread will certainly do; the limit is the test's own timeout."""
    while not condition():
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running(source: FakeSource | None = None) -> AsyncIterator[tuple[LiveView, Pilot[int]]]:
    app = LiveView(source or FakeSource(snapshot()), Controls(), lambda _state: "out.json")
    async with app.run_test(size=(100, 30)) as pilot:
        await until(lambda: "SELECT users.location" in text(app) or source is not None)
        yield app, pilot


def test_a_blocked_source_does_not_block_keys() -> None:
    async def scenario() -> None:
        async with running(FakeSource()) as (app, pilot):
            await until(lambda: "waiting for the first interval" in text(app))
            await pilot.press("h")
            assert "Keys" in text(app)
            await pilot.press("q")
        assert app.return_value == 0

    asyncio.run(scenario())


def test_a_failing_source_shows_its_error_and_keeps_the_screen() -> None:
    async def scenario() -> None:
        source = FakeSource(snapshot())
        async with running(source) as (app, _):
            source.put(QjouleError("the tracer died: see its message"))
            await until(lambda: "the tracer died" in text(app))
            assert "users.location" in text(app)
            assert "END OF TRACE" in text(app)
        assert isinstance(app.failure, QjouleError)

    asyncio.run(scenario())


def test_keys_reach_the_screen_and_the_source_and_quitting_stops_it() -> None:
    async def scenario(quit_key: str) -> None:
        async with running() as (app, pilot):
            await pilot.press("n", "<", "space", "a", "E")
            screen = text(app)
            for phrase in ("calls ▲", "PAUSED", "since reset", "written: out.json"):
                assert phrase in screen
            await pilot.press("/", *"delete", "enter", "g", "+", "+", "-", "R")
            assert "filter 'delete'" in text(app)
            assert "users.location" not in text(app)
            controls = app._controls
            assert (controls.group, controls.interval_s, controls.resets) == ("server", 5.0, 1)
            await pilot.press(quit_key)
        assert app.return_value == 0
        assert app._controls.stopped
        assert not app._thread.is_alive()

    asyncio.run(scenario("q"))
    asyncio.run(scenario("ctrl+c"))
