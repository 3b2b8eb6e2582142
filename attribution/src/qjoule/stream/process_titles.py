# SPDX-License-Identifier: Apache-2.0
"""Reads what a server's processes do, and for whom, from the titles on their command lines.

The kernel knows all processes of such a server by the same name. A process writes its title a
moment after the fork, into its own memory, which no BPF program reads at a context switch. So the
stream's reader looks it up in /proc, which needs no privilege. If the title cannot be read (the
process has gone, or `hidepid` is set), the process keeps the name that the kernel knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from qjoule.contract import TASK, Block, SessionEvent, TaskEvent
from qjoule.servers.decoding_types import Titles
from qjoule.servers.direct_access import read_text
from qjoule.stream.blocks import Frame, Source, Stream

#: A process without a title after this time never gets one: it is the main process, or our user may
#: not see it.
WAIT_NS = 2_000_000_000
#: Stream time between two lookups of missing titles.
LOOK_NS = 5_000_000
MAX_WAITING = 4_096
#: Events that themselves name what the process does from then on.
_NAMED = (TaskEvent.RENAME, TaskEvent.ROLE)


def read_title(tgid: int) -> str:
    """A process's command line as one string; empty if it has gone."""
    return read_text(Path(f"/proc/{tgid}/cmdline")).replace("\0", " ").strip()


class ProcessTitleStream(Stream):
    """A stream in which processes of the `servers` are renamed by title.

    `servers`: how to read each server's titles, by the attach plan's ids.

    It adds blocks to the tracer's: a TASK block of one RENAME for each title, with the time of the
    event that announced the process; and a SESSION block of event USER for a session whose login
    was not seen.
    """

    def __init__(
        self,
        source: Source | int,
        servers: Mapping[int, Titles],
        read: Callable[[int], str] = read_title,
    ) -> None:
        super().__init__(source)
        self._servers = servers  #: grows with servers that are followed
        self._title_of = read
        self._waiting: dict[int, np.void] = {}  #: by tgid: the event that announced it
        self._looked_ns = 0

    def __iter__(self) -> Iterator[Frame]:
        for frame in super().__iter__():
            yield frame
            if not self._servers or frame.kind is Block.END:
                continue
            if frame.kind is Block.TASK:
                self._note(frame)
            elif frame.kind is Block.SESSION:
                yield from self._rename_with_client(frame)
                yield from self._session_names(frame)
            if self._waiting and frame.t_ns >= self._looked_ns + LOOK_NS:
                self._looked_ns = frame.t_ns
                yield from self._look_up_titles(frame.t_ns)

    def _note(self, frame: Frame) -> None:
        for task in frame.records:
            tgid = int(task["tgid"])
            if int(task["pid"]) != tgid:
                continue
            if task["event"] == TaskEvent.EXIT or int(task["server"]) not in self._servers:
                self._waiting.pop(tgid, None)
            elif task["event"] not in _NAMED and len(self._waiting) < MAX_WAITING:
                self._waiting[tgid] = task

    def _rename_with_client(self, frame: Frame) -> Iterator[Frame]:
        """Renames a process by its client: a session means that it has one, and a lookup might come
        too late."""
        announced = self._waiting.pop(int(frame.records["tgid"][0]), None)
        if announced is not None:
            role = self._servers[int(announced["server"])].with_client
            yield _renamed(announced, role, frame.t_ns)

    def _session_names(self, frame: Frame) -> Iterator[Frame]:
        """Reads the title at a MET event, which may carry it. The client just sent a request, so
        the title is up to date.
        """
        record = frame.records[0]
        if record["event"] != SessionEvent.MET:
            return
        if (titles := self._servers.get(int(record["server"]))) is None:
            return
        title = frame.text.rstrip(b"\0").decode("utf-8", "replace")
        whose = titles.session(title or self._title_of(int(record["tgid"])))
        if whose is None:
            return
        text = b"".join(name.encode("utf-8", "replace") + b"\0" for name in whose)
        user = frame.records.copy()
        user["event"], user["text_bytes"] = SessionEvent.USER, len(text)
        yield Frame(Block.SESSION, frame.t_ns, user, text)

    def _look_up_titles(self, now_ns: int) -> Iterator[Frame]:
        for tgid, announced in list(self._waiting.items()):
            role = self._servers[int(announced["server"])].role(self._title_of(tgid))
            if role:
                yield _renamed(announced, role, now_ns)
            if role or now_ns > int(announced["t_ns"]) + WAIT_NS:
                del self._waiting[tgid]


def _renamed(announced: np.void, role: str, now_ns: int) -> Frame:
    renamed = np.array([announced], TASK)
    renamed["event"], renamed["comm"] = TaskEvent.RENAME, role.encode()
    return Frame(Block.TASK, now_ns, renamed)
