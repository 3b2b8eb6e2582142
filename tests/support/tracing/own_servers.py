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
    """The same program in another place: with `--pid`, no server that was chosen."""
    copy = program.parent.parent / "elsewhere" / program.name
    copy.parent.mkdir()
    shutil.copy2(program, copy)
    return copy


def upgrade(program: Path) -> None:
    """In place, as a package manager does it: another file under the same name."""
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
    """Waits until meta.json tells it: the recorder writes it when it is true."""
    until(lambda: text in (trace / "meta.json").read_text(), text, seconds=PATIENCE_S)
