# SPDX-License-Identifier: Apache-2.0
"""A recording that is captured and converted later: the same tables, whatever happens meanwhile."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from bench.bench_convert import make_capture
from click.testing import CliRunner, Result
from hypothesis import example, given
from hypothesis import strategies as st

from captured_trace import CANARY, META, captured_trace, eventful
from qjoule.commands import attribute
from qjoule.commands import convert as convert_command
from qjoule.errors import QjouleError
from qjoule.process import OPENED
from qjoule.servers.decoding import fingerprint
from qjoule.spool import convert as module
from qjoule.spool.convert import convert
from qjoule.spool.files import CONVERTING, FOLDER, is_captured, names_of, spool_of
from qjoule.stream.blocks import Stream
from qjoule.stream.context import StreamContext
from qjoule.stream.record import record
from qjoule.trace.reader import Trace
from qjoule.trace.schema import TABLES
from qjoule.trace.writer import TraceWriter

#: As our own user, also if that is root: the command's entry point would give up root.
_CODE = "import sys; from qjoule.cli import main; sys.argv[0] = 'qjoule'; main()"
QJOULE = (sys.executable, "-c", _CODE)
PIECES = eventful(1.6)
QUERIES = 643  #: in these pieces; one more row is a child
COMMANDS = {"convert": convert_command, "attribute": attribute}


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace that is written while the stream is read."""
    trace = tmp_path_factory.mktemp("direct") / "trace"
    stream = Stream(io.BytesIO(b"".join(PIECES)))
    record(stream, TraceWriter(trace), StreamContext(fingerprint, META))
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


def _holds(directory: Path, content: bytes) -> bool:
    return any(content in path.read_bytes() for path in directory.rglob("*") if path.is_file())


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


# ---- captures that are damaged, or whose conversion ends early -----------------------------------


def test_a_capture_that_was_cut_off_keeps_all_whole_frames(captured: Path) -> None:
    for path, size in ((spool_of(captured), 2 / 3), (names_of(captured), 0.99)):
        os.truncate(path, int(path.stat().st_size * size))
    meta = convert(captured).meta
    assert (meta.complete, meta.stopped) == (False, "parts of the recording are damaged")
    assert 0.6 * QUERIES < meta.rows["queries"] < 0.7 * QUERIES
    assert Trace(captured).table("queries")["fingerprint"].null_count == 0


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
    with module._locked(captured), pytest.raises(QjouleError, match="by another process"):
        convert(captured)


# ---- several processes ---------------------------------------------------------------------------


@pytest.mark.usefixtures("always_parallel")
@example(cut=0.25, flips=2, seed=0)
@given(cut=st.floats(0.1, 1), flips=st.integers(0, 3), seed=st.integers(0, 1 << 30))
def test_tables_do_not_depend_on_the_number_of_processes(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, cut: float, flips: int, seed: int
) -> None:
    """They are equal byte by byte, with meta.json, even if the capture is cut off or damaged."""
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
def test_several_processes_convert_what_root_has_opened(captured: Path, direct: Path) -> None:
    opened = os.open(captured, os.O_PATH)
    convert(OPENED / str(opened), jobs=2)
    os.close(opened)
    assert _files(captured) == _files(direct)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_ended_leaves_no_process_and_the_whole_capture(
    tmp_path: Path, how: signal.Signals
) -> None:
    make_capture(tmp_path / "large", 1_200_000)
    size = spool_of(tmp_path / "large").stat().st_size
    # It may be done before a test on a busy machine has seen its processes: then, too, it stays.
    command_line = [*QJOULE, "convert", "--keep", "--jobs", "2", str(tmp_path / "large")]
    with subprocess.Popen(command_line, stderr=subprocess.PIPE) as command:
        # psutil lists all processes of the machine, which may end meanwhile.
        listed = Path(f"/proc/{command.pid}/task/{command.pid}/children")
        deadline = time.monotonic() + 60
        while not (pids := listed.read_text().split()):
            assert command.poll() is None and time.monotonic() < deadline
        children = [psutil.Process(int(pid)) for pid in pids]
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


def test_a_command_that_reads_a_capture_converts_it_first(captured: Path) -> None:
    done = _run("attribute", captured, "--format", "json", "--calibration", "none")
    assert done.exception is None
    assert f"{captured} is captured and not converted yet: converting it now" in done.stderr
    assert sum(row["calls"] or 0 for row in json.loads(done.stdout)["rows"]) == QUERIES
    assert not is_captured(captured)
