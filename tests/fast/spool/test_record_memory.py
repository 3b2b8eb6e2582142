# SPDX-License-Identifier: Apache-2.0
"""What keeps the memory of a recording small: few imports, work apart, freed pages."""

from __future__ import annotations

import ctypes
import gc
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fake_tracer as ft
from qjoule.errors import QjouleError, UsageError
from qjoule.session.apart import apart
from qjoule.spool.capture import Capture
from qjoule.spool.files import FOLDER
from qjoule.stream.blocks import Stream
from qjoule.trace.meta import Meta

HEAVY = ("pyarrow", "pandas", "scipy", "capstone", "_hashlib", "qjoule.model.coefficients")
CAPTURES = (
    *("qjoule.commands.record", "qjoule.commands.kept", "qjoule.session.tracing"),
    *("qjoule.spool.capture", "qjoule.spool.ring_capture"),
)
KEEPER = "qjoule.session.keeper_process"
ROUNDS, PAGES = 20, 6 * 512  #: six arrays of 2 MB in each
FAULTS = f"""
import resource
import numpy as np
from qjoule.freed_memory import keep_freed_memory
keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({ROUNDS}):
        arrays = [np.ones(1 << 18) for _ in range(6)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def printed(code: str, *options: str) -> str:
    """What a new Python prints that runs this."""
    words = [sys.executable, *options, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_what_captures_imports_no_arrow_openssl_model_or_disassembler() -> None:
    modules = ", ".join(CAPTURES)
    assert printed(f"import sys, {modules}; print(*set({HEAVY}) & set(sys.modules))") == ""


def test_a_keeper_that_has_nothing_to_do_imports_little() -> None:
    code = f"import sys, {KEEPER}; print(*(m for m in sys.modules if m.startswith('qjoule.')))"
    parts = {"installed", "errors", "root_part", "root_part.reader_filter", "session"}
    assert set(printed(code, "-I").split()) == {KEEPER, *(f"qjoule.{part}" for part in parts)}


def test_a_module_that_is_needed_late_is_imported_then() -> None:
    printed(
        "import sys; from qjoule.late import pa; assert 'pyarrow' not in sys.modules;"
        "import pyarrow; assert pa.int32() == pyarrow.int32() and pa.Table is pyarrow.Table"
    )


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="libc is not glibc")
def test_freed_arrays_are_taken_again() -> None:
    assert int(printed(FAULTS)) < PAGES  # those of one round at most


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


def test_work_apart_leaves_nothing_here() -> None:
    large = bytearray(1 << 20)

    def work() -> tuple[int, bytes]:
        large[0] = 1
        return os.getpid(), bytes(large)  # more than a pipe holds

    pid, result = apart(work)
    assert (pid != os.getpid(), len(result), result[0], large[0]) == (True, 1 << 20, 1, 0)
    assert gc.get_freeze_count() == 0
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def _fails(error: BaseException) -> object:
    raise error


@pytest.mark.parametrize(
    ("work", "error", "words"),
    [
        (lambda: _fails(QjouleError("it cannot be traced")), QjouleError, "cannot be traced"),
        (lambda: _fails(UsageError("choose one")), UsageError, "choose one"),
        (lambda: _fails(KeyError("x")), RuntimeError, "in _fails"),  # its traceback
        (lambda: os._exit(3), RuntimeError, "ended with status"),
        (lambda: os.kill(os.getpid(), 9), RuntimeError, "ended with status"),
        (lambda: lambda: None, RuntimeError, "pickle"),
    ],
)
def test_failures_apart_are_raised_here(
    work: Callable[[], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        apart(work)
