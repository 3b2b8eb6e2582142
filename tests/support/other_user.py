# SPDX-License-Identifier: Apache-2.0
"""A process of another user of this host, forked from the test, which must run as root; files that
other users can reach, and the mode of new ones.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOBODY, SOMEBODY = 65534, 54003


@contextmanager
def other_user(
    uid: int, work: Callable[[], tuple[Any, object]], namespaces: int = 0
) -> Iterator[Any]:
    """Runs `work` in a process of that user, in new `namespaces` (CLONE_NEWNET) that root makes.

    The process ends with the block.
    """
    said_here, said_there = os.pipe()
    end_there, end_here = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end_here)
        if ctypes.CDLL(None).unshare(namespaces):
            os._exit(1)
        _work(uid, work, said_there, end_there)
    os.close(said_there)
    os.close(end_there)
    try:
        with os.fdopen(said_here, "rb") as reader:
            answer = reader.readline()
        assert answer, "it failed: see above"
        yield json.loads(answer)
    finally:
        os.close(end_here)
        os.waitpid(pid, 0)


def _work(uid: int, work: Callable[[], tuple[Any, object]], writer: int, end: int) -> None:
    """Runs in the child; never returns."""
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        answer, open_object = work()
        os.write(writer, json.dumps(answer).encode() + b"\n")
        os.close(writer)
        os.read(end, 1)
        del open_object
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def for_all_users() -> str:
    """The temporary directory; `/tmp` if that belongs to one user only, as with libpam-tmpdir."""
    place = Path(tempfile.gettempdir()).resolve()
    if all(directory.stat().st_mode & stat.S_IXOTH for directory in (place, *place.parents)):
        return str(place)
    return "/tmp"


@contextmanager
def umask(bits: int) -> Iterator[None]:
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)
