"""A process that stays root for one thing: to put a finished file where only root may.

The command itself gives up root before it parses anything. What it hands to the keeper is checked
again before it is written, so it can put no other file there than one of this kind.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from qjoule.errors import QjouleError
from qjoule.trace.durable import publish

_MODE = 0o644


class Keeper:
    """Writes `path` if it is given a document that `check` lets pass, and removes `scratch`.

    `check` raises `ValueError` for another document. `owner`: (uid, gid) of the file; None: root's.
    To be made as root, before any thread is started. Leaving the block ends the process; if nothing
    was put by then, or whatever killed us, nothing is written.
    """

    def __init__(
        self,
        path: Path,
        check: Callable[[bytes], object],
        most_bytes: int,
        *,
        owner: tuple[int, int] | None = None,
        scratch: Path | None = None,
    ) -> None:
        self._path = path.absolute()
        self._check, self._most, self._owner, self._scratch = check, most_bytes, owner, scratch
        from_us, self._to_keeper = os.pipe()
        self._answers, to_us = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._keep(from_us, to_us)
        os.close(from_us)
        os.close(to_us)

    def __enter__(self) -> Keeper:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def put(self, document: bytes) -> None:
        """Has the file written. Raises `QjouleError` if that cannot be done."""
        with os.fdopen(self._to_keeper, "wb") as pipe, suppress(BrokenPipeError):
            pipe.write(document)
        self._to_keeper = -1
        with os.fdopen(self._answers, "rb") as pipe:
            answer = pipe.read().decode("utf-8", "replace")
        self._answers = -1
        if answer != "ok":
            raise QjouleError(f"cannot write {self._path}: {answer or 'its writer was killed'}")

    def _end(self) -> None:
        for descriptor in (self._to_keeper, self._answers):
            if descriptor >= 0:
                os.close(descriptor)
        self._to_keeper = self._answers = -1
        if self._pid:
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
        self._pid = 0

    # ---- the process that stays root ------------------------------------------------------------

    def _keep(self, from_parent: int, to_parent: int) -> None:
        """Never returns."""
        try:
            os.close(self._to_keeper)
            os.close(self._answers)
            os.umask(0o022)  # others are to find it, whatever root's shell says
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_IGN)  # the end of the pipe is the end
            with os.fdopen(from_parent, "rb") as pipe:
                document = pipe.read(self._most + 1)
            if document:
                with suppress(OSError):
                    os.write(to_parent, (self._write(document) or "ok").encode())
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)
        finally:
            os._exit(0)

    def _write(self, document: bytes) -> str:
        """What went wrong, or nothing."""
        try:
            if len(document) > self._most:
                raise ValueError("it is too large")
            self._check(document)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._replace(document)
        except OSError as error:
            return error.strerror or str(error)
        except ValueError as error:
            return str(error)
        return ""

    def _replace(self, document: bytes) -> None:
        """The directory may be the user's: nothing that lies there already is followed or kept."""
        descriptor, name = tempfile.mkstemp(prefix=".qjoule-", dir=self._path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, _MODE)
                if self._owner is not None:
                    os.fchown(descriptor, *self._owner)
                file.write(document)
                file.flush()
                os.fsync(descriptor)
            publish(Path(name), self._path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
