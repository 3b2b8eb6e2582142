# SPDX-License-Identifier: Apache-2.0
"""Servers whose executables a test may replace, and recorders that go on while they restart."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from qjoule_studies.servers.process import DatabaseServer
from qjoule_studies.servers.redis import installed_redis, redis_in
from tracing.recording import Recorder, recording
from waiting import until

PATIENCE_S = 90.0


def own_program(directory: Path) -> Path:
    """A copy of Redis' executable."""
    copy = directory / "bin" / "redis-server"
    copy.parent.mkdir()
    shutil.copy2(installed_redis(), copy)
    return copy


def stranger(program: Path) -> Path:
    """A copy of the program at another path: to a recorder with `--pid`, a server not chosen."""
    copy = program.parent.parent / "elsewhere" / program.name
    copy.parent.mkdir()
    shutil.copy2(program, copy)
    return copy


def upgrade(program: Path) -> None:
    """Replaces the executable as a package manager does: a new file under the same name."""
    new = program.with_suffix(".new")
    shutil.copy2(program, new)
    new.rename(program)


@contextmanager
def serving(program: Path, directory: Path) -> Iterator[DatabaseServer]:
    directory.mkdir()
    with redis_in(directory, program) as server:
        yield server


def work(server: DatabaseServer, key: str, commands: int) -> None:
    with server.connect() as client:
        for number in range(commands):
            client.set(f"{key}:{number}", number)


def recorded(
    trace: Path, *pids: int, options: tuple[str, ...] = ()
) -> AbstractContextManager[Recorder]:
    """A recording of these processes."""
    return recording(trace, *(f"--pid={pid}" for pid in pids), *options)


def until_meta_has(trace: Path, text: str) -> None:
    """Waits until meta.json has this text: the recorder rewrites the file as things happen."""
    until(lambda: text in (trace / "meta.json").read_text(), text, seconds=PATIENCE_S)
