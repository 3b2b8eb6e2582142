# SPDX-License-Identifier: Apache-2.0
"""Recordings beside the agent: a flight recorder, and those that a desk starts.

Each is a `qjoule record` of its own, which the root part starts (tracer/root/recording.c). Its
directory in `--recordings` is a number, the Unix time of its start. What has ended is passed to the
process that listens as open files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol

from qjoule.errors import QjouleError
from qjoule.metrics.shared import SharedBytes
from qjoule.remote.control import MAX_FILES, SCHEMA, EngineEnd, ShelfFile, Wish
from qjoule.spool.ring_files import RingFiles

#: Seconds between two looks at what runs, at directories that change, and between two starts of a
#: flight recorder.
LOOK_S, SHOW_S, AGAIN_S = 1.0, 5.0, 600.0
_NUMBER = re.compile(r"[1-9][0-9]{0,19}")
_PART = re.compile(r"kept-[A-Za-z0-9-]{1,100}")
_META, _MAX_META_BYTES = "meta.json", 4 << 20


class Recording(IntEnum):
    """`enum rp_recording` (tracer/root/protocol.h): at most one of each runs."""

    TIMED = 0
    KEPT = 1


class Order(IntEnum):
    """`enum rp_order`: what the root part is to do about it."""

    STATE = 0
    START = 1
    STOP = 2
    SAVE = 3


class Ask(Protocol):
    """Asks the root part: whether it runs, and its last exit code. Raises `QjouleError`."""

    def __call__(
        self, which: Recording, order: Order, number: int = 0, seconds: int = 0
    ) -> tuple[bool, int]: ...


@dataclass(frozen=True)
class Limits:
    """`seconds`: the longest recording that a desk may order; `kept`: how many are kept;
    `flight_s`: what a flight recorder holds; 0: there is none."""

    seconds: int = 600
    kept: int = 8
    flight_s: int = 0


@dataclass
class _Slot:
    number: int = 0
    runs: bool = False
    seconds: int = 0
    next_s: float = 0.0  #: when a flight recorder may start


@dataclass
class Recordings:
    """The engine's side. `clock`: Unix time; `say` logs a line. `end` and `board`: to the process
    that listens, if there is one."""

    directory: Path
    ask: Ask
    limits: Limits
    say: Callable[[str], object]
    end: EngineEnd | None = None
    board: SharedBytes | None = None
    clock: Callable[[], float] = time.time
    _slots: dict[Recording, _Slot] = field(
        default_factory=lambda: {one: _Slot() for one in Recording}
    )
    _shown: dict[str, str] = field(default_factory=dict)  #: state by name
    _look_s: float = 0.0
    _show_s: float = 0.0
    _unfinished: bool = False
    _document: bytes = b""  #: a list that is not told yet

    @property
    def busy(self) -> bool:
        """Whether one runs that a desk ordered."""
        return self._slots[Recording.TIMED].runs

    def tick(self, now_s: float) -> None:
        """To be called several times a second. `now_s`: by a clock without steps."""
        self._tell_desks()
        if self.end is not None:
            for wish, seconds in self.end.orders():
                self._do(wish, seconds)
        if now_s < self._look_s:
            return
        first, self._look_s = not self._look_s, now_s + LOOK_S
        changed = [self._look(which) for which, slot in self._slots.items() if slot.runs]
        self._keep_flight(now_s)
        # A flight recorder saves parts when something triggers it, and nobody tells us.
        may_change = self._unfinished or self._slots[Recording.KEPT].runs
        if first or any(changed) or (may_change and now_s >= self._show_s):
            self._show_s = now_s + SHOW_S
            self._show()

    def _do(self, wish: Wish, seconds: int) -> None:
        if wish is Wish.START:
            self._start(Recording.TIMED, min(seconds, self.limits.seconds))
        elif wish is Wish.STOP:
            self._tell(Recording.TIMED, Order.STOP)
        else:
            self._tell(Recording.KEPT, Order.SAVE)

    def _start(self, which: Recording, seconds: int) -> None:
        slot = self._slots[which]
        if slot.runs:
            self.say("recordings: one runs already")
            return
        self._remove_old()
        number = max(int(self.clock()), slot.number + 1)
        while (self.directory / str(number)).exists():
            number += 1
        try:
            slot.runs, _ = self.ask(which, Order.START, number, seconds)
        except QjouleError as error:
            self.say(f"recordings: not started: {error}")
            return
        slot.number, slot.seconds = number, seconds
        words = "a flight recorder runs" if which is Recording.KEPT else f"records {seconds} s"
        self.say(f"recordings: {words} in {self.directory / str(number)}")
        self._show()

    def _tell(self, which: Recording, order: Order) -> None:
        try:
            self.ask(which, order)
        except QjouleError as error:
            self.say(f"recordings: {error}")

    def _look(self, which: Recording) -> bool:
        """Whether it has ended since."""
        slot = self._slots[which]
        try:
            slot.runs, code = self.ask(which, Order.STATE)
        except QjouleError as error:
            slot.runs, code = False, 1
            self.say(f"recordings: {error}")
        if not slot.runs:
            words = "has ended" if not code else f"has failed (exit code {code})"
            self.say(f"recordings: {self.directory / str(slot.number)} {words}")
        return not slot.runs

    def _keep_flight(self, now_s: float) -> None:
        slot = self._slots[Recording.KEPT]
        if self.limits.flight_s and not slot.runs and now_s >= slot.next_s:
            slot.next_s = now_s + AGAIN_S
            self._start(Recording.KEPT, self.limits.flight_s)

    def _found(self) -> Iterator[tuple[str, Path, str]]:
        """Name, directory and state of each, the oldest first. A part has its recorder's number."""
        running = {str(slot.number) for slot in self._slots.values() if slot.runs}
        for one in sorted(_directories(self.directory, _NUMBER), key=lambda path: int(path.name)):
            if not RingFiles(one).folder.is_dir():
                state = "recording" if one.name in running else _state_of(one)
                yield one.name, one, state
            for part in sorted(_directories(one, _PART)):
                yield f"{one.name}-{part.name}", part, _state_of(part)

    def _show(self) -> None:
        """Tells what there is."""
        found = list(self._found())
        self._unfinished = any(state == "unfinished" for _, _, state in found)
        states = {name: state for name, _, state in found}
        listed: list[dict[str, Any]] = []
        for name, path, state in found:
            files = _files_of(path) if state == "ended" else []
            if len(files) > MAX_FILES:
                files = []  # it stays here
            listed.append(
                {
                    "name": name,
                    "state": state,
                    "files": [{"name": one.name, "bytes": one.bytes} for one in files],
                }
            )
            if files and self._shown.get(name) != state and self.end is not None:
                self.end.put(name, files)
        for name in self._shown.keys() - states.keys():
            if self.end is not None:
                self.end.drop(name)
        self._shown = states
        flight = self._slots[Recording.KEPT]
        if self.board is not None:
            about = {"seconds": flight.seconds} if flight.runs else None
            content = {"schema": SCHEMA, "recordings": listed, "flight_recorder": about}
            self._document = json.dumps(content).encode()
        self._tell_desks()

    def _tell_desks(self) -> None:
        """Files first: what is listed can be fetched."""
        if self.end is not None and self.board is not None:
            self.end.send()
            if self._document and not self.end.waits:
                self.board.put(self._document)
                self._document = b""

    def _remove_old(self) -> None:
        """Leaves room for one more, and the ring of the last flight recorder alone."""
        running = {str(slot.number) for slot in self._slots.values() if slot.runs}
        found = [(name, path) for name, path, state in self._found() if state != "recording"]
        for _, path in found[: max(0, len(found) - self.limits.kept + 1)]:
            shutil.rmtree(path, ignore_errors=True)
        rings = [
            one
            for one in _directories(self.directory, _NUMBER)
            if RingFiles(one).folder.is_dir() and one.name not in running
        ]
        for one in sorted(rings, key=lambda path: int(path.name))[:-1]:
            shutil.rmtree(RingFiles(one).folder, ignore_errors=True)


def _directories(where: Path, names: re.Pattern[str]) -> list[Path]:
    with suppress(OSError):
        return [one for one in where.iterdir() if names.fullmatch(one.name) and one.is_dir()]
    return []


def _state_of(path: Path) -> str:
    """`ended`, or `unfinished`: it is converted still, or its recorder was killed."""
    try:
        with (path / _META).open("rb") as file:
            found = json.loads(file.read(_MAX_META_BYTES))
    except (OSError, ValueError):
        return "unfinished"
    captured = isinstance(found, dict) and found.get("captured") and not found.get("part")
    return "unfinished" if captured else "ended"


def _files_of(path: Path) -> list[ShelfFile]:
    """The files of a recording, down to one folder below."""
    below = [one for one in path.glob("*/*") if not _PART.match(one.parent.name)]
    return [
        ShelfFile(str(one.relative_to(path)), one, one.stat().st_size)
        for one in sorted([*path.glob("*"), *below])
        if one.is_file() and not one.is_symlink()
    ]


def made(directory: Path) -> Path:
    """The directory, made if it is not there. Raises `QjouleError`: it is not ours."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = directory.stat()
    except OSError as error:
        raise QjouleError(f"--recordings: {directory}: {error.strerror}") from None
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise QjouleError(f"--recordings: {directory} must belong to uid {os.geteuid()} alone")
    return directory
