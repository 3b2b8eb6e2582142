# SPDX-License-Identifier: Apache-2.0
"""A dataset's files: on a local path, or on any filesystem that fsspec opens by a URL.

Listing opens no files. Names that begin with `.` are unfinished files. Links on a local path are
refused, so that a shipper cannot make a reader open other files. SFTP connects only to servers
whose keys are known.
"""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from qjoule.api import QjouleError
from qjoule.api.command import OPENED


def filesystem(
    url: str, options: Mapping[str, str] | None = None, *, anew: bool = False
) -> tuple[Any, str]:
    """Returns the filesystem and the path on it. `options`: fsspec's. `anew`: opens new
    connections.

    Raises `ImportError` without fsspec or the filesystem's library, and the filesystem's errors.
    """
    core: Any = importlib.import_module("fsspec.core")
    registry: Any = importlib.import_module("fsspec.registry")
    for scheme in ("sftp", "ssh"):
        registry.register_implementation(
            scheme,
            "qjoule_fleet.sftp.KnownHosts",
            clobber=True,
            errtxt="sftp:// needs paramiko: pip install 'qjoule-fleet[sftp]'",
        )
    opened, path = core.url_to_fs(url, skip_instance_cache=anew, **(options or {}))
    return opened, str(path)


#: Bound on the files and directories of one listing.
MOST_FILES = 2_000_000


@dataclass(frozen=True, slots=True)
class File:
    """`path` is relative to the dataset. `stamp` changes if the file is replaced."""

    path: str
    size: int
    stamp: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that was not read, and why. `host`: from its path; '' if the path has none."""

    path: str
    reason: str
    host: str = ""


class Files(Protocol):
    """The files of a dataset. `root`: the dataset's directory as DuckDB names it."""

    root: str

    def directories(self, path: str) -> list[str]:
        """Names of subdirectories, without those that begin with `.`."""

    def walk(self, path: str, refused: list[Refused]) -> Iterator[File]:
        """Yields all files below a directory, which may not exist."""

    def open(self, path: str) -> Any:
        """Opens a file for reading in binary mode. Raises `OSError`."""


def dataset(text: str) -> Files:
    """The files of a path or of a URL such as `s3://bucket/fleet`.

    Raises `QjouleError` if there is no such directory.
    """
    if "://" in text and not text.startswith("file://"):
        return RemoteFiles(text)
    return LocalFiles(Path(text.removeprefix("file://")))


class LocalFiles:
    def __init__(self, path: Path) -> None:
        try:
            self._path = path if path.parent == OPENED else path.resolve(strict=True)
        except OSError as error:
            raise QjouleError(f"cannot read {path}: {error.strerror}") from None
        if not self._path.is_dir():
            raise QjouleError(f"{path} is no directory: give the directory that has rollups/")
        self.root = str(self._path)

    def directories(self, path: str) -> list[str]:
        try:
            with os.scandir(self._path / path) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
                )
        except FileNotFoundError:
            return []
        except OSError as error:
            raise QjouleError(f"cannot list {self._path / path}: {error.strerror}") from None

    def walk(self, path: str, refused: list[Refused]) -> Iterator[File]:
        waiting, seen = [path], 0
        while waiting:
            directory = waiting.pop()
            try:
                entries = sorted(os.scandir(self._path / directory), key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                refused.append(_refused(directory, f"cannot be listed: {error.strerror}"))
                continue
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if (seen := seen + 1) > MOST_FILES:
                    raise _too_many(path)
                name = f"{directory}/{entry.name}"
                try:
                    entry_stat = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # it was removed meanwhile
                if stat.S_ISDIR(entry_stat.st_mode):
                    waiting.append(name)
                elif stat.S_ISREG(entry_stat.st_mode):
                    stamp = f"{entry_stat.st_mtime_ns} {entry_stat.st_ctime_ns} {entry_stat.st_ino}"
                    yield File(name, entry_stat.st_size, stamp)
                else:
                    refused.append(_refused(name, "it is no regular file"))

    def open(self, path: str) -> Any:
        return (self._path / path).open("rb")


class RemoteFiles:
    def __init__(self, url: str) -> None:
        try:
            importlib.import_module("fsspec")
        except ImportError:
            raise QjouleError("fsspec is missing: pip install 'qjoule-fleet'") from None
        try:
            self.filesystem, self._path = filesystem(url)
            self.filesystem.invalidate_cache()
            exists = self.filesystem.isdir(self._path)
        except Exception as error:  # each filesystem has its own exceptions
            raise QjouleError(f"cannot read {url}: {_first_line(error)}") from None
        if not exists:
            raise QjouleError(f"{url} is no directory, or there is nothing in it")
        self._path = self._path.rstrip("/")
        self.root = str(self.filesystem.unstrip_protocol(self._path))

    def directories(self, path: str) -> list[str]:
        try:
            self.filesystem.invalidate_cache()
            entries = self.filesystem.ls(f"{self._path}/{path}", detail=True)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise QjouleError(f"cannot list {self.root}/{path}: {_first_line(error)}") from None
        names = (
            entry["name"].rstrip("/").rpartition("/")[2]
            for entry in entries
            if entry["type"] == "directory"
        )
        return sorted(name for name in names if name and not name.startswith("."))

    def walk(self, path: str, refused: list[Refused]) -> Iterator[File]:
        try:
            self.filesystem.invalidate_cache()
            entries = self.filesystem.find(f"{self._path}/{path}", detail=True)
        except FileNotFoundError:
            return
        except Exception as error:
            refused.append(_refused(path, f"cannot be listed: {_first_line(error)}"))
            return
        if len(entries) > MOST_FILES:
            raise _too_many(path)
        for name, entry_stat in sorted(entries.items()):
            relative = name[len(self._path) :].lstrip("/")
            if not any(part.startswith(".") for part in relative.split("/")):
                stamps = (entry_stat.get(key) for key in ("ETag", "etag", "mtime", "LastModified"))
                stamp = next(
                    (str(value) for value in stamps if value),
                    str(entry_stat.get("created", "")),
                )
                yield File(relative, int(entry_stat.get("size") or 0), stamp)

    def open(self, path: str) -> Any:
        try:
            return self.filesystem.open(f"{self._path}/{path}", "rb")
        except OSError:
            raise
        except Exception as error:
            raise OSError(_first_line(error)) from None


def _refused(path: str, reason: str) -> Refused:
    host = next((name[5:] for name in path.split("/") if name.startswith("host=")), "")
    return Refused(path, reason, host)


def _too_many(path: str) -> QjouleError:
    return QjouleError(f"{path} has more than {MOST_FILES:,} files: ask for a shorter range")


def _first_line(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.splitlines()[0][:200]
