# SPDX-License-Identifier: Apache-2.0
"""Converts a recording while it is made, in a process that runs only where a CPU would be idle.

The recording does not depend on it. It reads what is on the disk already, and may be stopped or
killed at any time: then all is converted at the end, as without it.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import select
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qjoule.errors import QjouleError
from qjoule.root_part.reader_filter import keep_from_starting
from qjoule.session.helper import FIRST, fork_helper, wait_shortly
from qjoule.trace.meta import parse_meta

if TYPE_CHECKING:
    from qjoule.spool.convert import Converted, Progress

#: Its descriptors: the first ends when the recording has, the second when it is to give up.
_ENDED, _LEASH, _PIPE = FIRST, FIRST + 1, FIRST + 2
#: Its name among the other processes of the trace.
NAME = b"qjoule-convert"
#: Time between two looks for more.
_PAUSE_S = 0.5
#: Without progress for so long, its work is left for later: it was stopped, or gets no CPU.
PATIENCE_S = 30.0
_READ_BYTES = 1 << 16
_STEP_BYTES = 1 << 20
_PR_SET_NAME = 15  #: prctl(2)
#: ioprio_set(2): the system call, "this process", and the class for idle disks
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_IOPRIO_PROCESS, _IOPRIO_IDLE = 1, 3 << 13


class Meanwhile:
    """Started in the trace's directory, while this process has one thread.

    Raises:
        QjouleError: no process can be started.
    """

    def __init__(self) -> None:
        theirs, self._pipe = [], -1
        try:
            ended, self._recording = os.pipe()
            leash, self._holding = os.pipe()
            self._pipe, said = os.pipe()
            theirs = [ended, leash, said]
            self.pid = fork_helper(_live, theirs)
        finally:
            for one in theirs:
                os.close(one)

    def finish(self, progress: Progress) -> Converted | None:
        """Lets it convert the rest, once nothing is captured any more.

        None: it was killed, it failed, or more than half is left, which takes less time at another
        priority. It has ended then.

        Raises:
            QjouleError: it makes no progress.
        """
        os.close(self._recording)
        self._recording = -1
        left = b""
        first = True
        while select.select([self._pipe], [], [], PATIENCE_S)[0]:
            data = os.read(self._pipe, _READ_BYTES)
            if not data:
                self._give_up()
                return None
            *lines, left = (left + data).split(b"\n")
            for said in map(json.loads, lines):
                if "meta" in said:
                    from qjoule.spool.convert import Converted  # noqa: PLC0415 - takes Arrow along

                    wait_shortly(self.pid)
                    return Converted(parse_meta(said["meta"].encode()), said["tagged"])
                if first and said["done"] < said["total"] / 2:
                    self._give_up()
                    return None
                first = False
                progress(said["done"], said["total"])
        raise QjouleError("the conversion makes no progress: run `qjoule convert` later")

    def close(self) -> None:
        """Ends it, whatever it does."""
        for one in (self._recording, self._holding, self._pipe):
            with suppress(OSError):
                os.close(one)

    def _give_up(self) -> None:
        os.close(self._holding)
        self._holding = -1
        # It may get hardly any CPU time to notice, and holds the trace until it has ended.
        wait_shortly(self.pid, PATIENCE_S)


def _live() -> None:
    """The whole life of the process."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, NAME, 0, 0, 0)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if number := _IOPRIO_SET.get(platform.machine()):
        libc.syscall(number, _IOPRIO_PROCESS, 0, _IOPRIO_IDLE)
    keep_from_starting()
    from qjoule.spool.convert import convert  # noqa: PLC0415 - the command needs no Arrow
    from qjoule.trace.arrow import leave_pandas_out  # noqa: PLC0415

    leave_pandas_out()
    recording = _Recording()
    trace = Path()
    while not (trace / "meta.json").exists():
        if not recording.goes_on():
            return
    try:
        made = convert(trace, more=recording.goes_on, progress=recording.progress)
    except (QjouleError, OSError, MemoryError):
        return  # the command converts itself, and says what hinders
    _say(meta=made.meta.to_json(), tagged=made.tagged)


class _Recording:
    """What the process knows of the recording."""

    def __init__(self) -> None:
        self._ended = False
        self._told = -_STEP_BYTES
        self._done = (0, 1)
        self._poll = select.poll()
        for one in (_ENDED, _LEASH):
            self._poll.register(one, 0)  # only that the other end was closed

    def goes_on(self) -> bool:
        """Waits a little for more; False: all is there, and has been looked at since."""
        if self._ended:
            return False
        self._look(_PAUSE_S)
        if self._ended:
            _say(done=self._done[0], total=self._done[1])
        return True

    def progress(self, done: int, total: int) -> None:
        self._done = (done, total)
        self._look(0)
        if self._ended and done - self._told >= _STEP_BYTES:
            self._told = done
            _say(done=done, total=total)

    def _look(self, seconds: float) -> None:
        for descriptor, _ in self._poll.poll(seconds * 1000):
            if descriptor == _LEASH:
                os._exit(0)
            self._ended = True


def _say(**values: Any) -> None:
    left = memoryview(json.dumps(values).encode() + b"\n")
    while left.nbytes:
        left = left[os.write(_PIPE, left) :]
