# SPDX-License-Identifier: Apache-2.0
"""A study's directory: its plan, its design, and a line for each run. No interruption harms it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from qjoule.api import QjouleError
from qjoule.api.command import FILE, READER, Run, hidden, write_whole
from qjoule_studies import plan_file
from qjoule_studies.design import Designed
from qjoule_studies.plan import Plan

RUNS = "runs"  #: the traces, and what each client saw
DESIGN = "design.json"
_LOCK = ".lock"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Study:
    """The directory of one study; `runs` are those that were made, in order."""

    def __init__(self, path: Path, runs: list[Run]) -> None:
        self.path = path
        self.runs = runs

    def trace(self, number: int) -> Path:
        return self.path / RUNS / f"{number:04d}.qjoule"

    def clear(self, number: int) -> None:
        """Removes what an interrupted run has left of a trace. Raises `QjouleError`."""
        trace = self.trace(number)
        if os.path.lexists(trace):
            shutil.rmtree(trace, ignore_errors=True)
            if os.path.lexists(trace):
                raise QjouleError(f"{trace} is left of a run that was cut off: remove it")

    def keep_answer(self, number: int, answer: dict[str, Any]) -> None:
        """What the client saw, beside the trace."""
        text = json.dumps(answer, indent=1) + "\n"
        path = self.path / RUNS / f"{number:04d}.json"
        with self.on_disk():
            write_whole(path, text.encode(), durable=False)
            _give(path)

    def add(self, run: Run) -> None:
        """Adds a line, whole or not at all."""
        line = json.dumps(run, allow_nan=False).encode() + b"\n"
        descriptor = os.open(self.path / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            with self.on_disk():
                try:
                    if os.write(descriptor, line) < len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(descriptor)
                except OSError:
                    os.ftruncate(descriptor, size)
                    raise
            if not size:
                _give(self.path / FILE)
        finally:
            os.close(descriptor)
        self.runs.append(run)

    @contextmanager
    def on_disk(self) -> Iterator[None]:
        """Turns an error of writing into a `QjouleError` that says what to do."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise self.full() from error
            raise QjouleError(f"cannot write to {self.path}: {error.strerror}") from error

    def full(self) -> QjouleError:
        return QjouleError(
            f"{self.path}: {os.strerror(errno.ENOSPC).lower()}; make some, and give the same "
            "command again: it goes on"
        )

    def is_full(self) -> bool:
        """Whether there is no room for a trace's first megabyte."""
        room = os.statvfs(self.path)
        return room.f_bavail * room.f_frsize < 1 << 20


@contextmanager
def open_study(path: Path, plan: Plan, design: Designed) -> Iterator[Study]:
    """A new study, or one of the same plan to continue; it is locked against other processes.

    Raises:
        QjouleError: the directory holds something else, another plan's study, or is in use.
    """
    study = Study(path, [])
    with study.on_disk():
        path.mkdir(parents=True, exist_ok=True)
    descriptor = lock(path, "bench")
    try:
        if (path / plan_file.FILE).exists():
            _same_plan(path, plan)
        elif {entry.name for entry in path.iterdir()} - {_LOCK, hidden(path / plan_file.FILE).name}:
            raise QjouleError(f"{path} is not empty and holds no study: give another directory")
        study.runs += _whole_lines(path / FILE)
        with study.on_disk():
            _write(path / plan_file.FILE, plan_file.to_text(plan))  # first: it makes it a study
            _write(path / DESIGN, json.dumps(_design_document(design), indent=1) + "\n")
            (path / RUNS).mkdir(exist_ok=True)
            for created in (path, path / RUNS, path / _LOCK):
                _give(created)
        yield study
    finally:
        os.close(descriptor)


def lock(path: Path, command: str) -> int:
    """A descriptor that keeps others from working in this directory. Raises `QjouleError`: another
    one does, or it cannot be written.
    """
    try:
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise QjouleError(f"cannot write to {path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise QjouleError(f"another qjoule {command} works in {path}: wait for its end") from None
    return descriptor


def _same_plan(path: Path, plan: Plan) -> None:
    before = plan_file.read_plan(path / plan_file.FILE)
    differ = [of for of in Plan.__struct_fields__ if getattr(before, of) != getattr(plan, of)]
    if not differ and list(before.factors) != list(plan.factors):
        differ = ["factors, in another order"]
    if differ:
        raise QjouleError(
            f"{path} holds a study of another plan ({', '.join(differ)}): give another directory, "
            f"or go on with {path / plan_file.FILE}"
        )


def _whole_lines(file: Path) -> list[Run]:
    """The runs that were made; a torn last line is cut off. Raises `QjouleError` on damage."""
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return []
    complete = text[: text.rfind(b"\n") + 1]
    runs: list[Run] = []
    for number, line in enumerate(complete.splitlines(), 1):
        try:
            run = json.loads(line)
            assert isinstance(run["factors"], dict) and run["run"] == number
            assert run["status"] in ("done", "failed") and isinstance(run["replication"], int)
        except (ValueError, KeyError, TypeError, AssertionError):
            raise QjouleError(f"{file}, line {number}: no run {number} is described here") from None
        runs.append(cast(Run, run))
    if len(complete) < len(text):
        os.truncate(file, len(complete))
    return runs


def _design_document(design: Designed) -> dict[str, Any]:
    return {
        "combinations": list(design.combinations),
        "fraction": asdict(design.fraction) if design.fraction else None,
        "notes": list(design.notes),
    }


def _write(path: Path, text: str) -> None:
    write_whole(path, text.encode())
    _give(path)


def _give(path: Path) -> None:
    """To the user of sudo, as traces are. Root's own may be read by whoever root's commands become
    to read its traces.
    """
    if os.geteuid() != 0:
        return
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    with suppress(OSError):
        if uid.isdigit() and gid.isdigit():
            os.chown(path, int(uid), int(gid), follow_symlinks=False)
        else:
            os.chown(path, 0, READER)
            mode = path.stat().st_mode
            path.chmod(mode | (mode & 0o500) >> 3)
