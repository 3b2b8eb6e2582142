# SPDX-License-Identifier: Apache-2.0
"""What keeps the memory of a recording small."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import fake_tracer as ft
from qjoule.commands.record import command
from qjoule.errors import QjouleError, UsageError
from qjoule.session.apart import apart
from qjoule.spool.capture import Capture
from qjoule.spool.files import FOLDER
from qjoule.stream.blocks import Stream
from qjoule.trace.meta import Meta

HEAVY = ("pyarrow", "pandas", "scipy", "capstone", "_hashlib", "qjoule.model.coefficients")
KEEPER = "qjoule.session.keeper_process"


@pytest.mark.parametrize(
    "module",
    [
        "qjoule.commands.record",
        "qjoule.commands.kept",
        "qjoule.session.tracing",
        "qjoule.spool.capture",
        "qjoule.spool.ring_capture",
    ],
)
def test_what_captures_imports_no_arrow_openssl_model_or_disassembler(module: str) -> None:
    code = f"import sys, {module}; print(*set({HEAVY}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_keeper_that_has_nothing_to_do_imports_little() -> None:
    code = f"import sys, {KEEPER}; print(*(m for m in sys.modules if m.startswith('qjoule.')))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    parts = {"installed", "errors", "root_part", "root_part.reader_filter", "session"}
    assert set(done.stdout.split()) == {KEEPER, *(f"qjoule.{part}" for part in parts)}


def test_a_module_that_is_needed_late_is_imported_then() -> None:
    code = (
        "import sys; from qjoule.late import pa; assert 'pyarrow' not in sys.modules;"
        "import pyarrow; assert pa.int32() == pyarrow.int32() and pa.Table is pyarrow.Table"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_flight_recorder_is_not_converted_meanwhile() -> None:
    done = CliRunner().invoke(command, ["--keep", "5m", "--convert", "idle"])
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith("--keep and --convert idle: give one of them")


def test_work_apart_leaves_nothing_here() -> None:
    large = bytearray(1 << 20)

    def work() -> tuple[int, int]:
        large[0] = 1
        return os.getpid(), len(large)

    pid, size = apart(work)
    assert (pid != os.getpid(), size, large[0]) == (True, 1 << 20, 0)
    assert gc.get_freeze_count() == 0
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def test_a_result_may_be_larger_than_a_pipe() -> None:
    assert apart(lambda: b"x" * (1 << 20)) == b"x" * (1 << 20)


def test_a_capture_keeps_no_rows_of_shapes(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    named: list[object] = []
    capture = Capture(tmp_path, ft.fingerprint, Meta(host="here"))
    capture._statements._on_named = named.append
    pieces = ft.head() + ft.text(7, b"SELECT 1 FROM a") + ft.text(8, b"SELECT 2 FROM b")
    for frame in Stream(io.BytesIO(pieces + ft.flush(ft.BEGIN_NS))):
        capture.add(frame)
    assert len(named) == 2
    assert capture._statements.take_shapes().num_rows == 0


def _fails(error: BaseException) -> object:
    raise error


@pytest.mark.parametrize("error", [QjouleError("it cannot be traced"), UsageError("choose one")])
def test_an_error_apart_is_raised_here(error: QjouleError) -> None:
    with pytest.raises(type(error), match=str(error)):
        apart(lambda: _fails(error))


def test_another_failure_apart_has_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="in _fails"):
        apart(lambda: _fails(KeyError("x")))


@pytest.mark.parametrize("end", [lambda: os._exit(3), lambda: os.kill(os.getpid(), 9)])
def test_a_process_that_is_killed_apart_is_noticed(end: object) -> None:
    assert callable(end)
    with pytest.raises(RuntimeError, match="ended with status"):
        apart(end)


def test_what_cannot_be_returned_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="pickle"):
        apart(lambda: lambda: None)
