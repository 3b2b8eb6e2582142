# SPDX-License-Identifier: Apache-2.0
"""Between the engine and the process that listens: orders one way, finished recordings the other.

An order has a fixed size, so the engine parses nothing that a stranger wrote. The process that
listens can open no file: the engine passes it descriptors, read-only, of recordings that have
ended. Neither waits for the other.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

#: Files of one recording that are passed on. One has some 30.
MAX_FILES = 128
MAX_SECONDS = 86_400
SCHEMA = "qjoule.recordings/1"
_ORDER = struct.Struct("=BI")
_MAX_NEWS_BYTES = 1024
#: There is no room now.
_LATER = (errno.EAGAIN, errno.ETOOMANYREFS, errno.ENOBUFS)


class Wish(IntEnum):
    """What a desk may wish."""

    START = 1
    STOP = 2
    SAVE = 3


@dataclass(frozen=True)
class ShelfFile:
    """A file of a recording. `name`: as in its directory."""

    name: str
    path: Path
    bytes: int


class EngineEnd:
    """The engine's end. It sends when there is room, and else later."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._news: deque[tuple[bytes, Path | None]] = deque()

    def orders(self) -> Iterator[tuple[Wish, int]]:
        """What was ordered since, each with its seconds; what is no order is left out."""
        while True:
            try:
                content = self._end.recv(_ORDER.size + 1)
            except OSError:
                return
            if not content:
                return
            if len(content) != _ORDER.size:
                continue
            wish, seconds = _ORDER.unpack(content)
            if wish in set(Wish) and seconds <= MAX_SECONDS:
                yield Wish(wish), seconds

    def put(self, name: str, files: Sequence[ShelfFile]) -> None:
        """Passes a recording on."""
        for at, one in enumerate(files[:MAX_FILES]):
            about = {"name": name, "file": one.name, "at": at, "bytes": one.bytes}
            self._news.append((json.dumps(about).encode(), one.path))

    def drop(self, name: str) -> None:
        """It is removed."""
        self._news.append((json.dumps({"name": name}).encode(), None))

    @property
    def waits(self) -> bool:
        """Whether something is not sent yet."""
        return bool(self._news)

    def send(self) -> None:
        """Sends what waits, as far as there is room."""
        while self._news:
            content, path = self._news[0]
            try:
                if path is None:
                    self._end.send(content)
                else:
                    self._send_file(content, path)
            except OSError as error:
                if error.errno in _LATER:
                    return
                # Otherwise the file has gone, or the process has.
            self._news.popleft()

    def _send_file(self, content: bytes, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            socket.send_fds(self._end, [content], [descriptor])
        finally:
            os.close(descriptor)


class ListenerEnd:
    """The end of the process that listens: it has each recording's open files, by their numbers."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._files: dict[str, dict[int, tuple[int, int]]] = {}

    def order(self, wish: Wish, seconds: int = 0) -> bool:
        """Whether the engine will read it."""
        self.take_news()
        try:
            return self._end.send(_ORDER.pack(wish, seconds)) == _ORDER.size
        except OSError:
            return False

    def file(self, name: str, at: int) -> tuple[int, int] | None:
        """A descriptor, which stays ours, and its bytes."""
        self.take_news()
        return self._files.get(name, {}).get(at)

    def take_news(self) -> None:
        """Makes room for more."""
        with suppress(OSError):
            while True:
                content, fds, _, _ = socket.recv_fds(self._end, _MAX_NEWS_BYTES, 1)
                if not content:
                    return
                news = json.loads(content)
                if fds:
                    self._drop(news["name"], news["at"])
                    self._files.setdefault(news["name"], {})[news["at"]] = (fds[0], news["bytes"])
                else:
                    for at in list(self._files.get(news["name"], ())):
                        self._drop(news["name"], at)
                    self._files.pop(news["name"], None)

    def _drop(self, name: str, at: int) -> None:
        before = self._files.get(name, {}).pop(at, None)
        if before is not None:
            os.close(before[0])


def both_ends() -> tuple[socket.socket, socket.socket]:
    """The engine's, and that of the process that listens."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
