# SPDX-License-Identifier: Apache-2.0
"""Servers of the kit and their loads; a client that repeats a load's statements."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from qjoule.api import QjouleError
from qjoule.api.servers import fingerprint, registry
from qjoule_studies.servers import module_for, products_in

_BLOCK_BYTES = 4096  #: a pipe's smallest size: what a client has not read yet
_LAST_WORDS = 400
#: A row of the table that `memory` visits, with its share of the index, in bytes.
ROW_BYTES = 100
STRIDE = 2_654_435_761  #: prime, near 2**32 / golden ratio (Knuth, TAOCP 3, 6.4): far jumps


@dataclass(frozen=True)
class KitServer:
    """A server that runs, and how a command-line client repeats statements on it.

    `product`: what traces call its kind. `dialect`: of its statements; None: they cannot be told
    apart, so it has one load at a time. `statements`: by kind of load, each tuple is repeated in
    this order; the first one counts the calls.
    """

    product: str
    pid: int
    dialect: str | None
    statements: Mapping[str, tuple[str, ...]]
    client: tuple[str, ...]
    environment: Mapping[str, str]

    def fingerprints(self, kind: str) -> tuple[str, ...] | None:
        """Fingerprints of a load's statements, in order; None if the server shows none."""
        if self.dialect is None:
            return None
        number = registry.dialect(self.dialect)
        return tuple(
            fingerprint(statement.encode(), number).fingerprint
            for statement in self.statements[kind]
        )


class Starter(Protocol):
    """A server's module in this folder.

    `ORDER`: the first one must be there, the others may be second.
    """

    PRODUCT: str
    ORDER: int

    def start(
        self, directory: Path, table_bytes: int, cpus: set[int]
    ) -> AbstractContextManager[KitServer]:
        """Starts the server on these CPUs and fills its tables; ends it on the way out.

        Raises `QjouleError` if it is not installed or does not start.
        """


def starters() -> tuple[Starter, ...]:
    """The modules of this folder's servers, the one that must be there first."""
    modules = [
        cast("Starter", module_for(__package__, product)) for product in products_in(__package__)
    ]
    return tuple(sorted(dict.fromkeys(modules), key=lambda starter: starter.ORDER))


def program(name: str, *places: str) -> str:
    """Path of a client. Raises `QjouleError` if it is not installed."""
    for place in places:
        if installed := sorted(Path("/").glob(place.lstrip("/"))):
            return str(installed[-1])
    on_path = shutil.which(name)
    if on_path is None:
        raise QjouleError(f"the client {name} is not installed")
    return on_path


def run_statements(server: KitServer, statements: str) -> None:
    """Has a client run statements once. Raises `QjouleError` with the end of its output."""
    done = subprocess.run(
        list(server.client),
        input=statements.encode(),
        env={**os.environ, **server.environment},
        capture_output=True,
        timeout=600,
        check=False,
    )
    if done.returncode or done.stderr:
        message = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise QjouleError(f"{server.product} refuses to prepare a load: {message[-_LAST_WORDS:]}")


@contextmanager
def repeating(
    directory: Path, server: KitServer, kind: str, name: str, cpus: set[int]
) -> Iterator[Callable[[], None]]:
    """A client process that repeats a load until the block ends.

    It has `name` as its process name, so that its energy can be found, and runs on `cpus`. Yields
    a check that raises `QjouleError` if it has ended.
    """
    link = directory / name
    if not link.is_symlink():
        link.symlink_to(server.client[0])
    process = subprocess.Popen(
        [str(link), *server.client[1:]],
        env={**os.environ, **server.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C must reach only us
    )
    assert process.stdin is not None
    with suppress(OSError):
        os.sched_setaffinity(process.pid, cpus)
    with suppress(OSError):  # else the pipe is 64 KiB, which only the end of a run sees
        fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, _BLOCK_BYTES)
    feeder = _Feeder(
        process, "".join(f"{statement}\n" for statement in server.statements[kind]).encode()
    )

    def check() -> None:
        if process.poll() is None:
            return
        assert process.stderr is not None
        message = process.stderr.read(_LAST_WORDS).decode(errors="replace").strip()
        raise QjouleError(f"the client of {server.product} ended: {message or 'it said nothing'}")

    try:
        feeder.start()
        yield check
    finally:
        process.kill()
        process.wait()
        feeder.join()
        for pipe in (process.stdin, process.stderr):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()


class _Feeder(threading.Thread):
    """Writes statements to a client in large blocks, so that this process seldom runs."""

    def __init__(self, process: subprocess.Popen[bytes], statements: bytes) -> None:
        super().__init__(name="qjoule-feeder", daemon=True)
        assert process.stdin is not None
        self._file = process.stdin.fileno()
        self._block = statements * max(_BLOCK_BYTES // len(statements), 1)

    def run(self) -> None:
        with suppress(OSError):  # the client was killed: its pipe has no reader
            while True:
                _write(self._file, self._block)


def _write(file: int, block: bytes) -> None:
    view: Sequence[int] | memoryview = memoryview(block)
    while view:
        view = view[os.write(file, view) :]  # type: ignore[arg-type]
