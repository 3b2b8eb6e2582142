# SPDX-License-Identifier: Apache-2.0
"""A recording that is captured and converted later: the same tables, whatever happens meanwhile."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from bench.bench_convert import make_capture
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from captured_trace import CANARY, META, captured_trace, eventful
from qjoule.commands import attribute, conversion, top
from qjoule.commands import convert as convert_command
from qjoule.errors import QjouleError, UsageError
from qjoule.servers.shapes import fingerprint
from qjoule.spool import convert as module
from qjoule.spool import workers
from qjoule.spool.convert import Converted, Progress, convert
from qjoule.spool.files import CONVERTING, FOLDER, is_captured, names_of, spool_of
from qjoule.spool.tables import Tables
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.stream.share import Share
from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace
from qjoule.trace.schema import TABLES
from qjoule.trace.writer import TraceWriter

#: As our own user, also if that is root: the command's entry point would give up root.
_CODE = "import sys; from qjoule.cli import main; sys.argv[0] = 'qjoule'; main()"
QJOULE = (sys.executable, "-c", _CODE)
PIECES = eventful(1.6)
QUERIES = 643  #: in these pieces; one more row is a child
COMMANDS = {"convert": convert_command, "attribute": attribute, "top": top}


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace that is written while the stream is read."""
    trace = tmp_path_factory.mktemp("direct") / "trace"
    record(Stream(io.BytesIO(b"".join(PIECES))), TraceWriter(trace), fingerprint, META)
    return trace


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture that no test changes."""
    trace = tmp_path_factory.mktemp("captured") / "trace"
    captured_trace(trace, PIECES)
    return trace


@pytest.fixture
def captured(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "trace"))


@pytest.fixture
def always_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes convert small captures, too."""
    monkeypatch.setattr(module, "WORTH_BYTES", 0)


def _tables(trace: Path) -> dict[str, pa.Table]:
    opened = Trace(trace)
    assert not opened.problems
    return {name: opened.table(name) for name in TABLES}


def _files(trace: Path) -> dict[str, bytes]:
    paths = (path for path in trace.rglob("*") if path.is_file() and "capture" not in path.parts)
    return {str(path.relative_to(trace)): path.read_bytes() for path in paths}


def _holds(directory: Path, words: bytes) -> bool:
    return any(words in path.read_bytes() for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("compress", [False, True])
def test_tables_are_those_of_a_direct_recording(
    direct: Path, tmp_path: Path, compress: bool
) -> None:
    trace = tmp_path / "trace"
    captured_trace(trace, PIECES, compress=compress)
    meta = json.loads((trace / "meta.json").read_text())
    assert (meta["complete"], meta["loss"]) == (False, {"segment": 3})
    assert meta["captured"]["bytes"] == spool_of(trace).stat().st_size
    assert meta["captured"]["queries"] == QUERIES
    assert Trace(trace).problems == ["it is captured and not converted: run `qjoule convert`"]
    assert not _holds(trace, CANARY), "no literal and no password is on the disk"
    convert(trace, keep=True)
    assert not _holds(trace, CANARY)
    expected, converted = _tables(direct), _tables(trace)
    for name in TABLES:
        assert converted[name].to_pylist() == expected[name].to_pylist(), name
    assert {name for name in TABLES if expected[name].num_rows} >= {
        *("queries", "segments", "energy", "owners", "sessions", "shapes", "loss", "transactions"),
    }
    texts = converted["transactions"]["text"].to_pylist()
    assert any(text.startswith("(began before tracing)") for text in texts)
    assert (direct / "meta.json").read_text() == (trace / "meta.json").read_text()


def test_literals_are_kept_where_the_user_asks_for_them(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    captured_trace(trace, PIECES, meta=Meta(literals=True, servers=META.servers))
    convert(trace)
    assert CANARY in b"".join(_tables(trace)["statements"]["text"].to_pylist())


# ---- captures that are damaged, or whose conversion ends early -----------------------------------


def test_a_capture_that_was_cut_off_keeps_all_whole_frames(captured: Path) -> None:
    for path, size in ((spool_of(captured), 2 / 3), (names_of(captured), 0.99)):
        os.truncate(path, int(path.stat().st_size * size))
    meta = convert(captured).meta
    assert (meta.complete, meta.stopped) == (False, "parts of the recording are damaged")
    assert 0.6 * QUERIES < meta.rows["queries"] < 0.7 * QUERIES
    assert Trace(captured).table("queries")["fingerprint"].null_count == 0


def test_a_damaged_frame_is_counted_as_loss(captured: Path) -> None:
    data = bytearray(spool_of(captured).read_bytes())
    data[len(data) // 2] ^= 1
    spool_of(captured).write_bytes(data)
    meta = convert(captured).meta
    assert (meta.complete, meta.loss["spool"]) == (False, 1)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_meta_json_is_an_error_and_the_capture_stays(
    captured: Path, content: bytes
) -> None:
    (captured / "meta.json").write_bytes(content)
    before = spool_of(captured).read_bytes()
    with pytest.raises(QjouleError, match=r"meta\.json: it .*; the recording is as it was"):
        convert(captured)
    assert spool_of(captured).read_bytes() == before


def _killed(*_args: object, **_kwargs: object) -> None:
    raise KeyboardInterrupt


def _full(*_args: object, **_kwargs: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("function", "fails"),
    [
        ("qjoule.spool.convert.replace_meta", _killed),
        ("qjoule.spool.convert.shutil.rmtree", _killed),
        ("qjoule.trace.writer.write_whole", _full),
    ],
)
def test_a_conversion_that_fails_can_be_begun_anew(
    captured: Path,
    direct: Path,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    fails: Callable[..., None],
) -> None:
    before = spool_of(captured).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(function, fails)
        with pytest.raises((KeyboardInterrupt, QjouleError)):
            convert(captured)
    assert spool_of(captured).read_bytes() == before
    convert(captured)
    assert _files(captured) == _files(direct)
    assert not (captured / CONVERTING).exists()


def test_two_conversions_at_once_do_not_meet(captured: Path) -> None:
    with module._alone(captured), pytest.raises(QjouleError, match="by another process"):
        convert(captured)


# ---- several processes ---------------------------------------------------------------------------


@pytest.mark.usefixtures("always_parallel")
@given(cut=st.floats(0.1, 1), flips=st.integers(0, 3), seed=st.integers(0, 1 << 30))
def test_tables_do_not_depend_on_the_number_of_processes(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, cut: float, flips: int, seed: int
) -> None:
    """Also of a capture that is cut off or damaged: byte by byte, with meta.json."""
    directory, chance = tmp_path_factory.mktemp("jobs"), random.Random(seed)
    trace = Path(shutil.copytree(whole, directory / "trace"))
    spool = bytearray(spool_of(trace).read_bytes())
    del spool[int(cut * len(spool)) :]
    for _ in range(flips):
        spool[chance.randrange(len(spool))] ^= 1 << chance.randrange(8)
    spool_of(trace).write_bytes(spool)
    for jobs in (1, 2):
        convert(trace, directory / str(jobs), jobs=jobs)
    assert _files(directory / "1") == _files(directory / "2")
    assert Trace(directory / "1").rows("queries")
    shutil.rmtree(directory)


@pytest.mark.usefixtures("always_parallel")
@pytest.mark.parametrize("share", [Share.TIMES, Share.QUERIES])
def test_a_process_that_is_killed_is_an_error_and_the_capture_stays(
    captured: Path, monkeypatch: pytest.MonkeyPatch, share: Share
) -> None:
    before = spool_of(captured).read_bytes()

    class Killed(Tables):
        def steps(self) -> Iterator[tuple[int, int]]:
            for number, step in enumerate(super().steps()):
                if number == 5 and self._share is share:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield step

    with monkeypatch.context() as patch:
        patch.setattr(workers, "Tables", Killed)
        with pytest.raises(QjouleError, match=r"was killed; the recording is as it was: run"):
            convert(captured, jobs=2)
    assert spool_of(captured).read_bytes() == before
    assert convert(captured, jobs=2).meta.complete
    assert not (captured / CONVERTING).exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_ended_leaves_no_process_and_the_whole_capture(
    tmp_path: Path, how: signal.Signals
) -> None:
    make_capture(tmp_path / "large", 1_200_000)
    size = spool_of(tmp_path / "large").stat().st_size
    words = [*QJOULE, "convert", "--jobs", "2", str(tmp_path / "large")]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as command:
        deadline = time.monotonic() + 60
        while len(children := psutil.Process(command.pid).children()) < 2:
            assert time.monotonic() < deadline
        command.send_signal(how)
        message = command.communicate(timeout=60)[1]
    assert b"Traceback" not in message
    assert psutil.wait_procs(children, timeout=30)[1] == []
    assert spool_of(tmp_path / "large").stat().st_size == size


# ---- commands ------------------------------------------------------------------------------------


def _run(name: str, *words: str | Path) -> Result:
    arguments = [str(word) for word in words]
    return CliRunner().invoke(COMMANDS[name].command, arguments, standalone_mode=False)


def test_convert_replaces_or_keeps_the_capture(captured: Path, tmp_path: Path) -> None:
    before = spool_of(captured).read_bytes()
    assert _run("convert", captured, "-o", tmp_path / "tables").exception is None
    assert spool_of(captured).read_bytes() == before
    assert Trace(tmp_path / "tables").complete
    spool_of(captured).chmod(0o400)  # as of another host
    converted = _run("convert", captured)
    assert (converted.exception, converted.return_value) == (None, 0)
    assert f"{QUERIES:,} calls" in converted.stderr
    assert Trace(captured).rows("queries") == QUERIES + 1
    assert not (captured / FOLDER).exists()
    assert "nothing to convert" in str(_run("convert", captured).exception)


def test_outputs_that_cannot_be(captured: Path, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    there = _run("convert", captured, "-o", tmp_path / "tables").exception
    assert isinstance(there, QjouleError) and "File exists" in str(there)
    two = _run("convert", captured, captured, "-o", tmp_path / "other").exception
    assert isinstance(two, UsageError)


def test_a_capture_without_its_names_is_converted_with_exit_code_1(captured: Path) -> None:
    names_of(captured).unlink()
    converted = _run("convert", captured)
    assert converted.return_value == 1
    assert f"{captured} is not complete: the names of the recording are missing" in converted.stderr
    assert Trace(captured).table("queries")["fingerprint"].null_count == QUERIES + 1


@pytest.mark.parametrize(
    "words",
    [
        ("attribute", "{}", "--format", "json"),
        ("top", "--replay", "{}", "-b", "-d", "60", "--json"),
    ],
)
def test_commands_that_read_a_capture_convert_it_first(
    captured: Path, words: tuple[str, ...]
) -> None:
    name, *options = (word.format(captured) for word in words)
    done = _run(name, *options, "--calibration", "none")
    assert done.exception is None
    assert f"{captured} is captured and not converted yet: converting it now" in done.stderr
    last = json.loads(done.stdout.splitlines()[-1] if name == "top" else done.stdout)
    assert sum(row["calls"] or 0 for row in last.get("interval", last)["rows"]) == QUERIES
    assert not is_captured(captured)


def test_a_capture_that_may_not_be_changed_is_read_as_a_copy(
    captured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere, so only the answer is replaced."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    done = _run("attribute", captured, "--calibration", "none")
    assert done.exception is None
    assert "reading a copy" in done.stderr
    assert is_captured(captured)
    assert not list(folder.iterdir()), "the copy is removed"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


def ten_steps(_trace: Path, _output: Path | None, *, progress: Progress, **_: object) -> Converted:
    for done in range(1, 11):
        progress(done, 10)
    return Converted(Meta(), 0)


@pytest.mark.parametrize("columns", [40, 120])
def test_a_terminal_shows_the_time_left(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(step=2)
    monkeypatch.setattr("click._termui_impl.time.time", lambda: float(next(seconds)))
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(conversion, "convert", ten_steps)
    conversion.converted(Path("trace"))
    bars = [line for line in re.split("[\r\n]", terminal.getvalue()) if "converting" in line]
    assert any(re.search(r"\d%  \d\d:\d\d:\d\d", line) for line in bars), bars
