# SPDX-License-Identifier: Apache-2.0
"""`qjoule convert`, and commands that read a recording which is not converted yet."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from captured_trace import captured_trace, eventful
from qjoule.commands import attribute, convert, top
from qjoule.errors import QjouleError, UsageError
from qjoule.spool.files import FOLDER, is_captured, names_of, spool_of
from qjoule.trace.reader import Trace

SECONDS = 1.6
QUERIES = 643  #: in as many seconds of `eventful`; one more row is a child
ATTRIBUTE = ("--calibration", "none", "--format", "json")


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    trace = tmp_path / "shop.qjoule"
    captured_trace(trace, eventful(SECONDS))
    return trace


def _run(words: Sequence[str | Path]) -> Result:
    command = {"convert": convert, "attribute": attribute, "top": top}[str(words[0])].command
    return CliRunner().invoke(command, [str(word) for word in words[1:]], standalone_mode=False)


def test_the_tables_replace_what_was_captured(captured: Path) -> None:
    done = _run(["convert", captured])
    assert (done.exception, done.return_value) == (None, 0)
    assert f"{QUERIES:,} calls" in done.stderr
    assert not is_captured(captured)
    assert Trace(captured).complete


def test_what_was_captured_can_be_kept(captured: Path) -> None:
    assert _run(["convert", "--keep", captured]).exception is None
    assert is_captured(captured)
    assert Trace(captured).rows("queries") == QUERIES + 1


def test_into_another_directory_the_recording_stays_as_it_is(
    captured: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in captured.rglob("*") if path.is_file()}
    assert _run(["convert", captured, "-o", tmp_path / "tables"]).exception is None
    assert {path: path.read_bytes() for path in captured.rglob("*") if path.is_file()} == before
    assert Trace(tmp_path / "tables").complete


def test_a_directory_that_is_there_is_not_written_to(captured: Path, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    done = _run(["convert", captured, "-o", tmp_path / "tables"])
    assert isinstance(done.exception, QjouleError)
    assert "File exists" in str(done.exception)


def test_one_output_is_for_one_recording(captured: Path, tmp_path: Path) -> None:
    done = _run(["convert", captured, captured, "-o", tmp_path / "tables"])
    assert isinstance(done.exception, UsageError)


def test_nothing_to_convert(tmp_path: Path) -> None:
    done = _run(["convert", tmp_path])
    assert "nothing to convert" in str(done.exception)


def test_attribute_converts_first_and_says_so(captured: Path) -> None:
    done = _run(["attribute", captured, *ATTRIBUTE])
    assert done.exception is None
    assert f"{captured} is captured and not converted yet: converting it now" in done.stderr
    assert not is_captured(captured)


def test_a_replay_converts_first_and_says_so(captured: Path) -> None:
    done = _run(["top", "--replay", captured, "-b", "-d", "60", "--json", "--calibration", "none"])
    assert done.exception is None
    assert f"{captured} is captured and not converted yet: converting it now" in done.stderr
    last = json.loads(done.stdout.splitlines()[-1])["interval"]
    assert sum(row["calls"] or 0 for row in last["rows"]) == QUERIES
    assert not is_captured(captured)


def test_a_recording_that_may_not_be_changed_is_read_as_a_copy(
    captured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere, so only the answer is replaced."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    done = _run(["attribute", captured, *ATTRIBUTE])
    assert done.exception is None
    assert "reading a copy" in done.stderr
    assert is_captured(captured)
    assert not list(folder.iterdir()), "the copy is removed"


def test_a_trace_that_is_only_captured_is_not_complete(captured: Path) -> None:
    trace = Trace(captured)
    assert not trace.complete
    assert trace.problems == ["it is captured and not converted: run `qjoule convert`"]


def test_a_recording_of_another_host_can_be_converted_here(captured: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(captured, moved)
    spool_of(moved).chmod(0o400)
    assert _run(["convert", moved]).exception is None
    assert Trace(moved).rows("queries") == QUERIES + 1
    assert not (moved / FOLDER).exists()


def test_a_recording_that_was_cut_off_says_so(captured: Path) -> None:
    names_of(captured).unlink()
    done = _run(["convert", captured])
    assert done.return_value == 1
    assert f"{captured} is not complete: the names of the recording are missing" in done.stderr
