# SPDX-License-Identifier: Apache-2.0
"""Does a piece of work in a process of its own, so that its memory is given back.

Planning loads a disassembler and parses files; a recording would hold 15 MB of it until it ends.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, TypeVar

from qjoule.errors import QjouleError

_PR_SET_PDEATHSIG = 1  #: prctl(2)
_T = TypeVar("_T")


def apart(work: Callable[[], _T], meanwhile: Callable[[], object] | None = None) -> _T:
    """What `work` returns, or the `QjouleError` that it raises. Call it with one thread.

    The process has all that this one has, and this one waits for it. Both are our own code with
    the same rights, so the result may be a pickle.

    Args:
        meanwhile: runs here while `work` runs there; it leaves one thread.

    Raises:
        QjouleError: also if no process can be started.
        RuntimeError: the work failed otherwise, with its traceback, or its process was killed.
    """
    parent = os.getpid()
    ours, theirs = os.pipe()
    gc.freeze()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            _live(work, theirs, parent)
    except OSError as error:
        os.close(ours)
        raise QjouleError(f"no process can be started: {error.strerror}") from None
    finally:
        gc.unfreeze()
        os.close(theirs)
    try:
        with os.fdopen(ours, "rb") as said:
            if meanwhile is not None:
                meanwhile()
            content = said.read()
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(pid, 0)
    if status or not content:
        raise RuntimeError(f"the process that planned ended with status {status:#x}")
    result, failure, trace = pickle.loads(content)
    if failure is not None:
        raise failure
    if trace:
        raise RuntimeError(trace)
    found: _T = result
    return found


def _live(work: Callable[[], object], pipe: int, parent: int) -> NoReturn:
    """The whole life of the process."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == parent:
            with os.fdopen(pipe, "wb") as said:
                said.write(_pickled(work))
            os._exit(0)
    finally:
        os._exit(1)


def _pickled(work: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((work(), None, ""))
    except QjouleError as error:
        return pickle.dumps((None, error, ""))
    except Exception:
        return pickle.dumps((None, None, traceback.format_exc()))
