# SPDX-License-Identifier: Apache-2.0
"""Follows a server to another process or executable; runs in the reattach helper.

It examines a process in the same way as at the start: an examiner without rights parses
it, and the root part attaches only to the file that was examined. Only programs that were loaded at
the start can be attached, so a server of another kind or attach mode is refused.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.root_part.access import identity_of, process_status
from qjoule.root_part.client import refusal_message
from qjoule.root_part.host import RootPartHost
from qjoule.root_part.protocol import CODE_BYTES, Kind, Refused, ask
from qjoule.servers.attach_plan import AttachPlan, PlannedServer, plan_bytes
from qjoule.servers.choice import KernelFacts, with_hidden
from qjoule.servers.discovery import make_labels_unique, server_of
from qjoule.servers.plan import SERVERS_MAX, build_plan
from qjoule.servers.processes import Owner, Process, Trust
from qjoule.servers.registry import c_name
from qjoule.servers.resolution import FileKey
from qjoule.servers.types import Examined, Facts, Server
from qjoule.session import tracer
from qjoule.session.turns import NotReadyError
from qjoule.stream.context import Followed
from qjoule.trace.meta import Server as TraceServer

_PROC = Path("/proc")
#: Places that servers of untrusted users must leave free, and most followed servers of one owner.
_KEPT_PLACES = _PLACES_OF_ONE = SERVERS_MAX // 4
_RUNNING = struct.Struct("=II")  #: struct qj_running: process, server


class Following:
    """The servers of a plan, and the processes that they run in now."""

    def __init__(
        self,
        plan: AttachPlan,
        kernel: KernelFacts,
        *,
        chosen: bool,
        attach_mode: AttachMode | None,
        fall_back: bool = False,
        hidden: Collection[tuple[str, str]] = (),
    ) -> None:
        self._kernel, self._chosen, self._attach_mode = kernel, chosen, attach_mode
        self._fall_back, self._hidden = fall_back, hidden
        self._new: Counter[Owner] = Counter()
        self._places = [_Place.of(planned) for planned in plan.traced]
        self._loaded = {_required_programs(planned) for planned in plan.traced}
        self._roles = {probe.role for planned in plan.traced for probe in planned.probes}
        self._attached: set[FileKey] = {
            planned.server.resolution.file
            for planned in plan.traced
            if planned.probes and planned.server.resolution is not None
        }

    def follow(self, root: socket.socket, pid: int, last: bool) -> Iterator[Followed]:
        """Attaches to a process, if it is a server that can be followed. The last answer counts.

        Raises `NotReadyError` if it may become one, unless this is the `last` attempt.
        """
        try:
            process, examined = _examined(root, pid, last)
            server = server_of(examined, [process])
            before = self._matching_place(server)
            if self._chosen and before is None:
                raise QjouleError("it is none of the chosen servers")
            planned = self._planned(server, before)
            place = self._place(planned, before)
            entry = place.entry(planned)
            yield Followed(pid, entry)
            self._attach(root, planned, place)
            yield Followed(pid, entry, attached=True)
        except NotReadyError:
            raise
        except Refused as error:
            yield Followed(pid, why=f"the root part refuses: {refusal_message(error)}")
        except QjouleError as error:
            yield Followed(pid, why=str(error))

    def _matching_place(self, server: Server) -> _Place | None:
        """Returns the ended server that this one continues, by what it serves and where it runs."""
        alike = [place for place in self._places if place.is_alike(server)]
        return next((place for place in alike if not place.runs), None)

    def _planned(self, server: Server, before: _Place | None) -> PlannedServer:
        attach_modes = [
            self._attach_mode,
            *([before.planned.choice.attach_mode] if before is not None else []),
        ]
        # Probes must not be added to a file that other users' servers run without probes.
        file = _file(server)
        same_file = [
            place.now for place in self._places if place is not before and _file(place.now) == file
        ]
        label = server.label if before is None else before.planned.server.label
        server = with_hidden(server, label, self._hidden)
        why = "no probes fit it"
        for attach_mode in dict.fromkeys(attach_modes):
            beside = [*same_file, server]
            plan = build_plan(beside, self._kernel, attach_mode, fall_back=self._fall_back)
            planned = plan.servers[-1]
            why = planned.choice.why
            if not planned.traced:
                continue
            if _required_programs(planned) not in self._loaded:
                why = f"no program of mode {planned.choice.attach_mode.name.lower()} was loaded"
            elif missing := {probe.role for probe in planned.probes} - self._roles:
                why = f"it needs probes that were not loaded: {', '.join(sorted(missing))}"
            else:
                return planned
        raise QjouleError(why)

    def _place(self, planned: PlannedServer, before: _Place | None) -> _Place:
        if before is None:
            self._check_room(planned.server.owner)
            servers = [*(place.planned.server for place in self._places), planned.server]
            server = replace(make_labels_unique(servers)[-1], id=len(servers))
            before = _Place.of(replace(planned, server=server))
            self._places.append(before)
        before.now = planned.server
        return before

    def _check_room(self, owner: Owner) -> None:
        """Raises `QjouleError` if no place is left for another server of this owner."""
        used = len(self._places)
        if used >= SERVERS_MAX:
            raise QjouleError(f"at most {SERVERS_MAX} servers at a time")
        if not owner.trusted and used >= SERVERS_MAX - _KEPT_PLACES:
            raise QjouleError("the last places are kept for the host's own services")
        if owner.trust is not Trust.ROOT and self._new[owner] >= _PLACES_OF_ONE:
            raise QjouleError(f"at most {_PLACES_OF_ONE} new servers of {owner} are followed")
        self._new[owner] += 1

    def _attach(self, root: socket.socket, planned: PlannedServer, place: _Place) -> None:
        file = _file(planned.server)
        if file not in self._attached:
            handle = planned.library_handle if planned.library else planned.server.handle
            for probe in planned.probes:
                name = c_name(probe.role).encode()
                text = probe.code.ljust(CODE_BYTES, b"\0") + name
                where, size = probe.site.offset, len(probe.code)
                ask(root, Kind.ATTACH, pid=handle, offset=where, size=size, text=text)
        _write_entry(root, place.id, planned)
        ask(root, Kind.DONE)
        if planned.probes:
            self._attached.add(file)


@dataclass
class _Place:
    """A server's entry in the plan of the kernel side."""

    planned: PlannedServer  #: the server as it was first found
    now: Server
    started: int  #: of its main process; -1: it does not run

    @staticmethod
    def of(planned: PlannedServer) -> _Place:
        server = planned.server
        pid = server.tgids[0] if server.tgids else 0
        return _Place(planned, server, _started(pid))

    @property
    def id(self) -> int:
        return self.planned.server.id

    @property
    def runs(self) -> bool:
        pid = self.now.tgids[0] if self.now.tgids else 0
        return self.started != -1 and _started(pid) == self.started

    def is_alike(self, server: Server) -> bool:
        planned = self.planned.server
        if planned.flavour != server.flavour:
            return False
        if planned.uid != server.uid and planned.running:
            return False
        return (
            bool(set(planned.ports) & set(server.ports))
            or bool(set(planned.sockets) & set(server.sockets))
            or planned.exe_name == server.exe_name
            or (planned.container, planned.unit) == (server.container, server.unit) != ("", "")
        )

    def entry(self, planned: PlannedServer) -> TraceServer:
        """Returns the server as the trace lists it, with its first id and name."""
        self.started = _started(planned.server.tgids[0])
        return replace(tracer.server_of(planned), id=self.id, name=self.planned.server.label)


def _write_entry(root: socket.socket, server: int, planned: PlannedServer) -> None:
    """Writes the server's entry, and makes the kernel side add the threads that already run."""
    pid, entry = planned.server.tgids[0], plan_bytes(planned)
    if identity_of(ask(root, Kind.EXE, pid=pid).file).key != planned.server.exe_id:
        raise QjouleError("it executes another program by now")
    # The section .data.servers of bpf/core/maps.bpf.c: all entries, then a struct qj_running.
    size = SERVERS_MAX * len(entry) + _RUNNING.size
    descriptor = ask(root, Kind.MAP).fd
    with mmap.mmap(descriptor, size) as servers:
        os.close(descriptor)
        servers[(server - 1) * len(entry) : server * len(entry)] = entry
        servers[SERVERS_MAX * len(entry) :] = _RUNNING.pack(pid, server)
    reply = ask(root, Kind.ATTACH, text=bytes(CODE_BYTES) + b"on_follow")
    with os.fdopen(reply.fd, "rb") as iterator:
        iterator.read()


def _file(server: Server) -> FileKey:
    return server.exe_id if server.resolution is None else server.resolution.file


def _required_programs(planned: PlannedServer) -> tuple[int, AttachMode, bool]:
    """Returns what decides which programs a server needs besides its probes."""
    return planned.server.kind, planned.choice.attach_mode, planned.next_read


def _started(pid: int) -> int:
    try:
        return process_status(pid).started if pid else -1
    except (ValueError, LookupError):
        return -1


def _examined(root: socket.socket, pid: int, last: bool) -> tuple[Process, Examined]:
    """Examines the process. Raises `QjouleError` if it is no server that listens."""
    host = RootPartHost(root)
    try:
        process = host.process(pid)
    except (Refused, ValueError, LookupError):
        raise QjouleError("it has ended") from None
    facts = Facts(process.exe_name, process.exe_id, pid, port_range=host.port_range())
    examined = host.examine(facts)
    if examined.flavour is not None and (examined.ports or examined.sockets):
        return process, examined
    why = examined.problem or "it is no server that listens"
    raise QjouleError(why) if last else NotReadyError(why)
