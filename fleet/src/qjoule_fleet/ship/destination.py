# SPDX-License-Identifier: Apache-2.0
"""Destinations of parts: a directory, or a filesystem that fsspec or pyarrow supports.

A reader of the destination finds each part complete or not at all. If files can be renamed, a part
is first written under a name that begins with `.`; object stores make an object visible at once.
Each attempt uses a unique name, because another shipper, or an abandoned attempt, may be writing
the same part. Nothing relies on listings, which may be stale: all names are known. Operations of a
filesystem may be slow, or fail temporarily; `RetryPolicy` bounds both.
"""

from __future__ import annotations

import errno
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from qjoule.api import QjouleError, UsageError
from qjoule.api.command import LazyModule, pa, write_whole
from qjoule_fleet.files import filesystem

#: Filesystems on which objects appear atomically.
_ATOMIC = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory"})
#: Maximum size of a manifest; a larger one is damaged.
MAX_READ = 64 << 20


class Destination(Protocol):
    """A place for parts. Methods raise the filesystem's errors; `put` may be repeated."""

    shown: str  #: the URL without password

    def put(self, path: str, content: bytes | Path) -> None:
        """Writes `content`, or the content of that file, to `path` relative to the destination."""

    def read(self, path: str) -> bytes | None:
        """Returns a file's content, or None if there is no such file."""


class Directory:
    """A local or mounted (NFS) directory."""

    def __init__(self, root: Path) -> None:
        self.root, self.shown = root, str(root)

    def put(self, path: str, content: bytes | Path) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # A part has at most some MB, as do the files of traces.
        data = content.read_bytes() if isinstance(content, Path) else content
        write_whole(target, data, unfinished=target.with_name(_unfinished(target.name)))
        for left in target.parent.glob(f".{escape(target.name)}.*.tmp"):
            left.unlink(missing_ok=True)  # of a killed shipper; a running one tries again

    def read(self, path: str) -> bytes | None:
        try:
            with (self.root / path).open("rb") as file:
                return _bounded(file.read(MAX_READ + 1))
        except FileNotFoundError:
            return None


class Remote:
    """A filesystem of fsspec. `root`: the destination's path on it."""

    def __init__(self, filesystem: Any, root: str, shown: str) -> None:
        self._files, self._root, self.shown = filesystem, root.rstrip("/"), shown
        kinds = filesystem.protocol
        kinds = {kinds} if isinstance(kinds, str) else set(kinds)
        self._atomic = bool(kinds & _ATOMIC)

    def put(self, path: str, content: bytes | Path) -> None:
        target = f"{self._root}/{path}"
        if self._atomic:
            self._write(target, content)
            return
        at = PurePosixPath(target)
        unfinished = str(at.with_name(_unfinished(at.name)))
        self._files.makedirs(str(at.parent), exist_ok=True)
        try:
            self._write(unfinished, content)
            size = content.stat().st_size if isinstance(content, Path) else len(content)
            self._files.invalidate_cache()
            if (arrived_bytes := self._files.info(unfinished)["size"]) != size:
                raise OSError(errno.EIO, f"{arrived_bytes} of {size} bytes arrived")
            self._files.mv(unfinished, target)
        except Exception:
            with suppress(Exception):  # each filesystem has its own errors
                self._files.rm_file(unfinished)
            raise

    def read(self, path: str) -> bytes | None:
        try:
            return _bounded(self._files.cat_file(f"{self._root}/{path}", start=0, end=MAX_READ + 1))
        except FileNotFoundError:
            return None

    def _write(self, target: str, content: bytes | Path) -> None:
        if isinstance(content, Path):
            self._files.put_file(str(content), target)
        else:
            self._files.pipe_file(target, content)


class ObjectStore:
    """A filesystem of pyarrow, if fsspec lacks a library. `root`: the destination's path in it."""

    def __init__(self, filesystem: Any, root: str, shown: str) -> None:
        self._files, self._root, self.shown = filesystem, root.rstrip("/"), shown

    def put(self, path: str, content: bytes | Path) -> None:
        data = content.read_bytes() if isinstance(content, Path) else content
        with self._files.open_output_stream(f"{self._root}/{path}") as stream:
            stream.write(data)

    def read(self, path: str) -> bytes | None:
        try:
            with self._files.open_input_stream(f"{self._root}/{path}") as stream:
                return _bounded(stream.read(MAX_READ + 1))
        except FileNotFoundError:
            return None


def destination(url: str, options: Mapping[str, str]) -> Destination:
    """Opens a destination. `options`: the filesystem's settings, as in fsspec.

    Raises `UsageError`, or `QjouleError` if a library is missing or reports an error.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        if parts.scheme and parts.netloc not in ("", "localhost"):
            raise UsageError(f"{url}: a directory's URL is file:///PATH")
        if options:
            raise UsageError("a directory has no options")
        path = unquote(parts.path) if parts.scheme else url
        if not path:
            raise UsageError("the destination is empty: name a directory or a URL")
        return Directory(Path(path).absolute())
    try:
        return _remote(url, parts.scheme, options)
    except QjouleError:
        raise
    except Exception as error:  # each filesystem has its own errors
        raise QjouleError(f"{_without_password(url)}: {error_text(error)}") from None


def error_text(error: BaseException) -> str:
    """Describes a filesystem's error on one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())[:300] or type(error).__name__


def _remote(url: str, scheme: str, options: Mapping[str, str]) -> Destination:
    shown = _without_password(url)
    try:
        return Remote(*filesystem(url, options, anew=True), shown)
    except ImportError as error:
        why = error_text(error)
        if (error.name or "").startswith("fsspec"):
            why = f"{scheme}:// needs fsspec: pip install 'qjoule-fleet'"
    if options:
        raise QjouleError(f"{scheme}:// with options: {why}")
    return _of_pyarrow(url, shown, why)


def _of_pyarrow(url: str, shown: str, why: str) -> ObjectStore:
    try:
        files, root = LazyModule("pyarrow.fs").FileSystem.from_uri(url)
    except pa.ArrowInvalid:
        raise QjouleError(f"{shown}: {why}") from None
    if files.type_name not in _ATOMIC:
        raise QjouleError(f"{shown}: {why}")
    return ObjectStore(files, root, shown)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=user.partition(":")[0] + at + host, query=""))


def _unfinished(name: str) -> str:
    return f".{name}.{secrets.token_hex(4)}.tmp"


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_READ:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return data


_T = TypeVar("_T")


class GaveUp(Exception):
    """An operation failed for good; the text says why."""


@dataclass(frozen=True)
class RetryPolicy:
    """Attempts and time limit of an operation. The pauses double, and vary by a half."""

    attempts: int = 4
    first_pause_s: float = 1.0
    longest_pause_s: float = 30.0
    timeout_s: float = 120.0  #: timeout of one attempt
    sleep: Callable[[float], None] = time.sleep

    def call(self, operation: Callable[[], _T]) -> _T:
        """Runs `operation`. Raises `GaveUp`. An attempt that times out is not repeated."""
        pause_s = self.first_pause_s
        for retries_left in range(self.attempts - 1, -1, -1):
            try:
                return self._in_time(operation)
            except TimeoutError:
                raise GaveUp(f"no answer in {self.timeout_s:g} s") from None
            except Exception as error:  # each filesystem has its own errors
                if not retries_left:
                    raise GaveUp(error_text(error)) from None
            self.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, self.longest_pause_s)
        raise AssertionError

    def _in_time(self, operation: Callable[[], _T]) -> _T:
        """Runs the operation in another thread, because filesystem calls cannot be interrupted."""
        done: list[_T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                done.append(operation())
            except BaseException as error:  # the caller raises it again
                failed.append(error)

        thread = threading.Thread(target=run, name="qjoule-ship", daemon=True)
        thread.start()
        thread.join(self.timeout_s)
        if thread.is_alive():
            raise TimeoutError
        if failed:
            raise _as_ordinary_error(failed[0])
        return done[0]


def _as_ordinary_error(error: BaseException) -> BaseException:
    """Makes a filesystem's own timeout an ordinary error, so that it is retried."""
    return OSError(error_text(error)) if isinstance(error, TimeoutError) else error
