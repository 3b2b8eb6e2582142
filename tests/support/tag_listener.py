# SPDX-License-Identifier: Apache-2.0
"""A slow and simple recorder following PROTOCOL.md, to check shims and the real recorder."""

from __future__ import annotations

import array
import json
import mmap
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from qjoule_drivers import channel as channel_module
from qjoule_drivers import instrument, uninstrument
from qjoule_drivers.channel import Channel
from qjoule_drivers.comments import put_in_connections, put_in_statements
from waiting import until

HEADER_BYTES = 4096
SLOT_BYTES = 64
NOT_DEFINED = 0xFFFFFFFF


@dataclass(frozen=True)
class Begin:
    """The beginning of a call, with its numbers resolved."""

    number: int
    t_ns: int
    connection: dict[str, Any]
    tags: dict[str, str]
    stream: int
    holds: bool
    trace: str | None
    span: str | None
    is_defined: bool  #: whether its tags could be defined


@dataclass
class Process:
    """One application process that has connected to the listener."""

    pid: int
    connected: socket.socket
    memory: mmap.mmap
    connections: dict[int, dict[str, Any]] = field(default_factory=dict)
    tags: dict[int, dict[str, str]] = field(default_factory=dict)
    begins: list[Begin] = field(default_factory=list)
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    overs: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    taken: int = 0
    ended: bool = False

    def word(self, at: int) -> int:
        """A 64-bit word of the ring."""
        return int(struct.unpack_from("=Q", self.memory, at)[0])

    @property
    def slots(self) -> int:
        return int(struct.unpack_from("=I", self.memory, 8)[0])

    @property
    def dropped(self) -> int:
        return self.word(128)

    @property
    def errors(self) -> int:
        return self.word(136)

    def want_changes(self, enabled: bool = True) -> None:
        """Asks for changes only, instead of each call."""
        struct.pack_into("=Q", self.memory, 80, enabled)

    @property
    def gap_ns(self) -> int:
        """The last time at which something could not be reported."""
        return self.word(144)

    def close_ring(self) -> None:
        """Announces that nothing more will be read."""
        struct.pack_into("=Q", self.memory, 72, 1)

    def poll(self) -> None:
        """Reads what is there, and makes room for more."""
        slots: list[bytes] = []
        while True:
            at = HEADER_BYTES + self.taken % self.slots * SLOT_BYTES
            if self.word(at + 56) != self.taken + 1:  # reads first what is written last
                break
            self.taken += 1
            slots.append(self.memory[at : at + SLOT_BYTES])
        self._read_definitions()
        for slot in slots:
            self._take(slot)
        for number in range(max(1, self.taken - self.slots // 4), self.taken + 1):
            end = self.word(HEADER_BYTES + (number - 1) % self.slots * SLOT_BYTES + 24)
            if end:
                self.ends.setdefault(number, (end >> 2, end & 3))
        struct.pack_into("=Q", self.memory, 64, self.taken)

    def _read_definitions(self) -> None:
        while not self.ended:
            try:
                message = self.connected.recv(1 << 14, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                message = b""
            if not message:
                self.ended = True
                return
            assert len(message) <= 8192
            definition = json.loads(message)
            for kind, definitions in (("connection", self.connections), ("tags", self.tags)):
                if kind in definition:
                    assert definition[kind] not in definitions
                    definitions[definition[kind]] = definition["of"]

    def _take(self, slot: bytes) -> None:
        trace, span, _, t_ns, call, kind_and_id, number = struct.unpack("=16s8sQQQQQ", slot)
        kind = kind_and_id & 0xFFFFFFFF
        if kind == 3:
            self.ends[call] = (t_ns, struct.unpack_from("=Q", slot, 24)[0] & 3)
            return
        if kind == 7:
            self.overs.append((t_ns, self.connections[call >> 32]))
            return
        assert kind in (1, 2, 5, 6)
        tags = call & 0xFFFFFFFF
        self.begins.append(
            Begin(
                number,
                t_ns,
                self.connections[call >> 32],
                self.tags[tags] if tags not in (0, NOT_DEFINED) else {},
                kind_and_id >> 32,
                bool(kind & 4),
                trace.hex() if kind & 3 == 2 else None,
                span.hex() if kind & 3 == 2 else None,
                tags != NOT_DEFINED,
            )
        )


@dataclass
class Listener:
    """Accepts processes; the test polls it."""

    path: Path
    server: socket.socket
    processes: list[Process] = field(default_factory=list)

    def poll(self) -> list[Process]:
        """Accepts new processes and reads their messages; returns all."""
        self.accept()
        for process in self.processes:
            process.poll()
        return self.processes

    def accept(self) -> None:
        """Accepts new processes."""
        while True:
            try:
                connected, _ = self.server.accept()
            except BlockingIOError:
                return
            rights = socket.CMSG_SPACE(4)
            message, ancillary, _, _ = connected.recvmsg(64, rights)
            assert message == b"qjoule tags 1\n"
            descriptor = array.array("i", ancillary[0][2])[0]
            memory = mmap.mmap(descriptor, 0)
            os.close(descriptor)
            assert memory[:8] == b"QJTAGS\x00\x01"
            peer = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            self.processes.append(Process(struct.unpack("=iII", peer)[0], connected, memory))

    def only(self) -> Process:
        """The only process that connected."""
        (process,) = self.poll()
        return process

    def wait_for(self, processes: int) -> list[Process]:
        """Polls until that many processes have connected."""
        until(lambda: len(self.poll()) >= processes)
        return self.processes

    def wait_until_gone(self, process: Process) -> Process:
        """Polls until the process has ended."""
        until(lambda: self.poll() and process.ended)
        return process

    def close(self) -> None:
        """Closes like a recorder that was killed: the kernel closes the sockets."""
        for process in self.processes:
            process.connected.close()
        self.server.close()
        with suppress(FileNotFoundError):
            self.path.unlink()


@contextmanager
def listening(path: Path) -> Iterator[Listener]:
    """A listener at this path."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    server.bind(str(path))
    server.listen(64)
    listener = Listener(path, server)
    try:
        yield listener
    finally:
        listener.close()


@contextmanager
def reporting_to(path: Path, **options: Any) -> Iterator[None]:
    """Drivers are wrapped, and this process's calls are reported to the recorder at `path`."""
    channel = channel_module.channel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel, "_path", str(path))
        channel.abandon()
        instrument(**options)
        yield
        uninstrument()
        channel.close()


@contextmanager
def sending_to_servers(directory: Path) -> Iterator[None]:
    """The shims find no recorder, as on another host, and send their tags to the server."""
    where = {"in_statements": ["endpoint", "tenant"], "in_connections": ["release"]}
    with reporting_to(directory / "nobody.sock", **where):
        yield
    put_in_statements(())
    put_in_connections(())


def settle(listener: Listener, channel: Channel) -> None:
    """Asks the channel to report changes only, and waits until it does."""
    channel.begin(None)
    listener.only().want_changes()
    channel.to.until_ns = 0
    channel.begin(None)


def tagged(listener: Listener, key: str = "m") -> list[Begin]:
    """The calls of the only process that have this tag."""
    return [begin for begin in listener.only().begins if key in begin.tags]


def status(process: Process, begin: Begin) -> int:
    """The status with which that call ended."""
    return process.ends[begin.number][1]
