# SPDX-License-Identifier: Apache-2.0
"""Records of `perf script`, one after the other, in bounded memory.

A record begins with a head (process, thread, CPU, time, event). Any bytes may follow, including
line feeds, because thread names and statements are chosen by their owners. A thread name has at
most 15 bytes, too few for a head, but a statement can imitate one. So a perf.data is read through
two outputs at once, with payloads and without, and a record begins only where both agree. A text
that was made elsewhere has no second output to compare with.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple

from qjoule.api import QjouleError
from qjoule.api.command import OPENED

FIELDS = "pid,tid,cpu,time,event"
#: Options of `perf script`; `TEXT_COMMAND` is the same command for people.
ARGUMENTS = ("--ns", "--show-task-events", "--show-lost-events", "-F")
TEXT_COMMAND = f"perf script --header -I {' '.join(ARGUMENTS)} {FIELDS},trace"
LINE_BYTES = 1 << 16  #: more than any record has: a statement is cut at 4 KiB
CPU_LIMIT = 1 << 12
MAGIC = (b"PERFILE2", b"2ELIFREP")

_HEAD = re.compile(
    rb" *(-?[0-9]{1,7})/(-?[0-9]{1,7}) +\[([0-9]{1,4})\] +([0-9]{1,10})\.([0-9]{9}|[0-9]{6}): +"
    rb"(?:PERF_RECORD_([A-Z0-9_]+)|([\w.:/-]*\w):(?=\s|\Z))"
)
_MICROSECONDS = 6  #: digits of a time without --ns


class Record(NamedTuple):
    """One record. `event` is `sched:sched_switch`, or `COMM` and the like of perf's own."""

    pid: int
    tid: int
    cpu: int
    t_ns: int
    event: bytes
    payload: bytes
    line: int  #: where it begins


@dataclass(frozen=True)
class Recording:
    """A perf.data, or the text that `perf script` made of one."""

    path: Path
    is_text: bool

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def header(self) -> list[str]:
        """Lines about the host, without their `#`. Empty: the text was made without --header."""
        if self.is_text:
            lines = _text_header(self.path)
        else:
            with _Script(self.path, "--header-only", "-I") as output:
                lines = [line for line in _limited(output, self.path) if line.startswith(b"#")]
        return [line[1:].decode("utf-8", "replace").strip() for line in lines]

    def heads(self) -> Iterator[Record]:
        """Records for the first pass: those of probes and of `sched` have no payload."""
        if self.is_text:
            yield from self.records()
            return
        with _Script(self.path, *ARGUMENTS, FIELDS) as output:
            yield from _records(_numbered(output, self.path), self.path)

    def records(self) -> Iterator[Record]:
        """All records. Raises `QjouleError` that names the first invalid line."""
        if self.is_text:
            with open_file(self.path) as text:
                yield from _records(_numbered(text, self.path), self.path)
            return
        with (
            _Script(self.path, *ARGUMENTS, FIELDS) as heads,
            _Script(self.path, *ARGUMENTS, f"{FIELDS},trace") as with_payload,
        ):
            beginnings = (line for _, line in _numbered(heads, self.path) if _HEAD.match(line))
            lines = _numbered(with_payload, self.path)
            yield from in_step(beginnings, lines, self.path)


def open_recording(path: Path) -> Recording:
    """Raises `QjouleError`: it cannot be read, or is neither."""
    with open_file(path) as file:
        start = file.read(8)
    if not start:
        raise QjouleError(f"{path} is empty: record again")
    if start in MAGIC:
        return Recording(path, is_text=False)
    if b"\0" in start:
        raise QjouleError(f"{path} is neither a perf.data nor a text of `perf script`")
    return Recording(path, is_text=True)


def open_file(path: Path) -> IO[bytes]:
    """Raises `QjouleError`."""
    try:
        return path.open("rb")
    except OSError as error:
        raise QjouleError(f"cannot read {path}: {error.strerror}") from error


def head_of(line: bytes, number: int, path: Path) -> Record | None:
    """The record that begins with this line, if one does; its payload is the rest of the line."""
    match = _HEAD.match(line)
    if match is None:
        return None
    pid, tid, cpu, seconds, fraction, own, event = match.groups()
    fraction_ns = int(fraction) * (1000 if len(fraction) == _MICROSECONDS else 1)
    t_ns = int(seconds) * 1_000_000_000 + fraction_ns
    if t_ns >= 1 << 63 or int(cpu) >= CPU_LIMIT:
        raise damaged(path, number, "no machine has such a time or CPU")
    return Record(
        int(pid),
        int(tid),
        int(cpu),
        t_ns,
        own or event,
        line[match.end() :].lstrip(b" ").removesuffix(b"\n"),
        number,
    )


def damaged(path: Path, line: int, reason: str) -> QjouleError:
    return QjouleError(f"{path}, line {line}: {reason}; see 'qjoule import perf --print-commands'")


def _records(lines: Iterator[tuple[int, bytes]], path: Path) -> Iterator[Record]:
    """A line without a head continues the record before it."""
    pieces: list[bytes] = []
    record: Record | None = None
    size = 0
    last = b"\n"
    for number, line in lines:
        last = line
        begun = head_of(line, number, path)
        if begun is None:
            if record is None:
                if line.startswith(b"#") or not line.strip():
                    continue
                raise damaged(path, number, "this is no record of `perf script`")
            size += len(line)
            if size > LINE_BYTES:
                raise damaged(path, number, "a record that is longer than any")
            pieces.append(line)
            continue
        if record is not None:
            yield _joined(record, pieces)
        record, pieces, size = begun, [], len(line)
    if not last.endswith(b"\n"):
        raise damaged(path, number, "the text ends within this line")
    if record is not None:
        yield _joined(record, pieces)


def _joined(record: Record, pieces: list[bytes]) -> Record:
    if not pieces:
        return record
    payload = record.payload + b"\n" + b"".join(pieces).removesuffix(b"\n")
    return record._replace(payload=payload)


def in_step(
    beginnings: Iterator[bytes], lines: Iterator[tuple[int, bytes]], path: Path
) -> Iterator[Record]:
    """Records that begin where the output without payloads has one too."""
    number, line = next(lines, (0, b""))
    while line and not _HEAD.match(line):
        number, line = next(lines, (0, b""))
    for begins, following in pairwise(_and_end(beginnings)):
        record = head_of(line, number, path) if line.startswith(begins.rstrip()) else None
        if record is None:
            raise damaged(path, number, "`perf script` gives two different accounts")
        pieces, size = [], 0
        ends = following.rstrip()
        for number, line in lines:
            if ends and line.startswith(ends):
                break
            size += len(line)
            if size > LINE_BYTES:
                raise damaged(path, number, "a record that is longer than any")
            pieces.append(line)
        yield _joined(record, pieces)


def _and_end(beginnings: Iterator[bytes]) -> Iterator[bytes]:
    yield from beginnings
    yield b""


def _numbered(file: IO[bytes], path: Path) -> Iterator[tuple[int, bytes]]:
    return enumerate(_limited(file, path), 1)


def _limited(file: IO[bytes], path: Path) -> Iterator[bytes]:
    number = 0
    while line := file.readline(LINE_BYTES):
        number += 1
        if len(line) == LINE_BYTES and not line.endswith(b"\n"):
            raise damaged(path, number, "a line that is longer than any of `perf script`")
        yield line


def _text_header(path: Path) -> list[bytes]:
    lines: list[bytes] = []
    with open_file(path) as text:
        for line in _limited(text, path):
            if not line.startswith(b"#") and line.strip():
                break
            lines.append(line)
    return lines


class _Script:
    """The output of `perf script`. Its failure is raised after all output has been read."""

    def __init__(self, path: Path, *arguments: str) -> None:
        self._path = path
        self._command = ["perf", "script", "-i", str(path.absolute()), *arguments]

    def __enter__(self) -> IO[bytes]:
        self._stack = ExitStack()
        self._messages = self._stack.enter_context(tempfile.TemporaryFile())
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._messages,
                env={**os.environ, "LC_ALL": "C"},
                pass_fds=[int(self._path.name)] if self._path.parent == OPENED else (),
            )
        except OSError as error:
            self._stack.close()
            raise QjouleError(
                f"cannot run perf ({error.strerror}): install it, or run "
                f"'{TEXT_COMMAND} > perf.txt' where it is and import that"
            ) from error
        assert self._process.stdout is not None
        return self._process.stdout

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._stack:
            assert self._process.stdout is not None
            self._process.stdout.close()
            if kind is not None:
                self._process.kill()
            code = self._process.wait()
            if kind is None and code:
                raise QjouleError(f"perf cannot read {self._path}: {self._last_message()}")

    def _last_message(self) -> str:
        self._messages.seek(0)
        lines = self._messages.read(LINE_BYTES).decode("utf-8", "replace").splitlines()
        errors = [line for line in lines if line.strip() and "not valid for" not in line]
        return errors[-1].strip() if errors else f"exit code {self._process.returncode}"
