# SPDX-License-Identifier: Apache-2.0
"""What keeps the memory of a recording small: few imports, work apart, freed pages."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from qjoule.children import run_in_subprocess
from qjoule.errors import QjouleError

HEAVY = ("pyarrow", "pandas", "scipy", "capstone", "_hashlib", "qjoule.model.coefficients")
CAPTURES = (
    *("qjoule.commands.record", "qjoule.commands.record_run"),
    "qjoule.commands.flight_recorder_session",
    *("qjoule.session.tracing", "qjoule.spool.capture", "qjoule.spool.ring_capture"),
)
KEEPER = "qjoule.session.reattach_helper_process"


def printed(code: str, *options: str) -> str:
    """What a new Python prints that runs this."""
    words = [sys.executable, *options, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_what_captures_imports_no_arrow_openssl_model_or_disassembler() -> None:
    modules = ", ".join(CAPTURES)
    assert printed(f"import sys, {modules}; print(*set({HEAVY}) & set(sys.modules))") == ""


def test_a_keeper_that_has_nothing_to_do_imports_little() -> None:
    code = f"import sys, {KEEPER}; print(*(m for m in sys.modules if m.startswith('qjoule.')))"
    root_part = {"process", "root_part", "root_part.reader_filter"}
    parts = {"installed", "errors", "session"} | root_part
    assert set(printed(code, "-I").split()) == {KEEPER, *(f"qjoule.{part}" for part in parts)}


def test_work_apart_leaves_nothing_here() -> None:
    gc.unfreeze()  # a helper that another test forked keeps what is frozen
    large = bytearray(1 << 20)

    def work() -> tuple[int, bytes]:
        large[0] = 1
        return os.getpid(), bytes(large)  # more than a pipe holds

    pid, result = run_in_subprocess(work)
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
        (lambda: _fails(KeyError("x")), RuntimeError, "in _fails"),  # its traceback
        (lambda: os.kill(os.getpid(), 9), RuntimeError, "ended with status"),
        (lambda: lambda: None, RuntimeError, "pickle"),
    ],
)
def test_failures_apart_are_raised_here(
    work: Callable[[], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        run_in_subprocess(work)
