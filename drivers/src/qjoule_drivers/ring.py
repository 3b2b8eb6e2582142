# SPDX-License-Identifier: Apache-2.0
"""A connected recorder: the ring that it reads, and the socket for definitions. See PROTOCOL.md."""

from __future__ import annotations

import _socket  # not `socket`: gevent and eventlet replace its methods by ones that may switch
import _thread  # not `threading`, whose locks gevent and eventlet replace
import array
import fcntl
import itertools
import json
import mmap
import os
import struct
import sys
from collections.abc import Mapping
from typing import Any, Protocol

MAGIC = b"QJTAGS\x00\x01"
SLOT_BYTES = 64
SLOTS = 16384  #: more than a second of a busy process
HEADER_BYTES = 4096
#: Kinds of records.
BEGIN, BEGIN_IN_TRACE, END = 1, 2, 3
#: Added to BEGIN and BEGIN_IN_TRACE: the record holds for all later calls on its connection and
#: stream.
HOLDS = 4
OVER = 7  #: the connection's earlier records no longer hold
#: In place of the tags' number: the call's tags could not be defined.
NOT_DEFINED = (1 << 32) - 1
#: How a call ended.
UNKNOWN, OK, ERROR = 0, 1, 2
#: The number of threads that may be between checking for room and taking a number.
MARGIN = 256

_HEADER = struct.Struct("=8sII")
_WORD = struct.Struct("=Q")
_TAIL_AT, _CLOSED_AT, _CHANGES_AT, _SEEN_AT = 64, 72, 80, 88
_DROPPED_AT, _ERRORS_AT, _GAP_AT, _SINCE_AT = 128, 136, 144, 152
_TRACE = struct.Struct("=16s8s")
_END = struct.Struct("=QQQQQ")
_RECORD_AT = 24
#: A 64-bit word is written as two halves, since combining them takes as long as writing them.
#: Native byte order and sizes take half the time of explicit ones.
_pack_begin = struct.Struct("QQIIIIQ").pack_into
_LOW_HALF_FIRST = sys.byteorder == "little"
_FIRST_AT = HEADER_BYTES + _RECORD_AT
_F_ADD_SEALS = getattr(fcntl, "F_ADD_SEALS", 1033)
_F_SEAL_SHRINK = getattr(fcntl, "F_SEAL_SHRINK", 0x2)


class Ring:
    """Writes records from any thread without a lock: a counter's ``next()`` is atomic in the
    interpreter.
    """

    __slots__ = (
        "_counting",
        "_counts",
        "_gap_ns",
        "_mask",
        "_memory",
        "_recent_slots",
        "_room",
        "_slots",
        "_take",
        "_taken",
        "fd",
    )

    def __init__(self, slots: int = SLOTS) -> None:
        """Raises OSError if there is no memfd. ``slots`` is a power of two, at least 2048."""
        self.fd = os.memfd_create("qjoule-tags", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, HEADER_BYTES + slots * SLOT_BYTES)
            fcntl.fcntl(self.fd, _F_ADD_SEALS, _F_SEAL_SHRINK)
            self._memory = mmap.mmap(self.fd, HEADER_BYTES + slots * SLOT_BYTES)
        except BaseException:
            os.close(self.fd)
            raise
        _HEADER.pack_into(self._memory, 0, MAGIC, slots, SLOT_BYTES)
        self._slots = slots
        self._mask = slots - 1
        self._recent_slots = slots // 4  #: ends may still be written into this many last records
        self._take = itertools.count(1).__next__
        self._taken = 0  #: approximate count of numbers taken
        self._room = slots - MARGIN  #: numbers up to this certainly have a free slot
        self._counting = _thread.RLock()
        self._counts = {_DROPPED_AT: 0, _ERRORS_AT: 0}
        self._gap_ns = 0

    def begin(  # noqa: PLR0917
        self,
        t_ns: int,
        connection: int,
        tags: int,
        stream: int,
        trace: tuple[bytes, bytes] | None,
        holds: int = 0,
    ) -> int:
        """Adds the begin of a call, or of all that follows (``HOLDS``). Returns the record's
        number, from 1, or 0 if the ring is full.
        """
        if self._taken >= self._room and not self._find_room():
            return 0
        self._taken = number = self._take()
        offset = _FIRST_AT + (number - 1 & self._mask) * SLOT_BYTES
        kind = BEGIN + holds
        if trace is not None:
            _TRACE.pack_into(self._memory, offset - _RECORD_AT, *trace)
            kind = BEGIN_IN_TRACE + holds
        if _LOW_HALF_FIRST:
            _pack_begin(self._memory, offset, 0, t_ns, tags, connection, kind, stream, number)
        else:
            _pack_begin(self._memory, offset, 0, t_ns, connection, tags, stream, kind, number)
        return number

    def end(self, t_ns: int, call: int, status: int) -> None:
        """Adds the end of the call that began with record ``call``: into that record, while it is
        recent.
        """
        if self._taken - call < self._recent_slots:
            offset = _FIRST_AT + (call - 1 & self._mask) * SLOT_BYTES
            _WORD.pack_into(self._memory, offset, t_ns << 2 | status)
        elif self._taken < self._room or self._find_room():
            self._taken = number = self._take()
            offset = _FIRST_AT + (number - 1 & self._mask) * SLOT_BYTES
            _END.pack_into(self._memory, offset, t_ns << 2 | status, t_ns, call, END, number)
        else:
            self.count_dropped()

    def over(self, t_ns: int, connection: int) -> int:
        """Adds a record that the connection's earlier records no longer hold. Returns as ``begin``
        does.
        """
        return self.begin(t_ns, connection, 0, 0, None, OVER - BEGIN)

    def gap(self, t_ns: int) -> None:
        """Marks that earlier records do not hold for anything that begins from now on."""
        with self._counting:
            # A gap that the recorder has not seen yet is extended.
            is_new = _WORD.unpack_from(self._memory, _SEEN_AT)[0] == self._gap_ns
            self._gap_ns = max(self._gap_ns, t_ns)
            if is_new:
                _WORD.pack_into(self._memory, _SINCE_AT, t_ns)
            _WORD.pack_into(self._memory, _GAP_AT, self._gap_ns)

    def count_error(self) -> None:
        """Counts an exception that was kept from the application."""
        self._count(_ERRORS_AT)

    def count_dropped(self) -> None:
        """Counts a record that could not be written."""
        self._count(_DROPPED_AT)

    @property
    def changes(self) -> bool:
        """Whether the recorder wants only changes, rather than each call."""
        return bool(_WORD.unpack_from(self._memory, _CHANGES_AT)[0])

    @property
    def closed(self) -> bool:
        """Whether the recorder has stopped taking records."""
        return bool(_WORD.unpack_from(self._memory, _CLOSED_AT)[0])

    def handed_over(self) -> None:
        """Closes our descriptor, which the recorder now has. The mapping stays valid."""
        os.close(self.fd)

    def _count(self, offset: int) -> None:
        with self._counting:
            self._counts[offset] += 1
            _WORD.pack_into(self._memory, offset, self._counts[offset])

    def _find_room(self) -> bool:
        tail: int = _WORD.unpack_from(self._memory, _TAIL_AT)[0]
        self._room = min(tail, self._taken) + self._slots - MARGIN
        return self._taken < self._room


HELLO = b"qjoule tags 1\n"
#: Room for some 2,000 definitions that the recorder has not read yet, if the host allows it.
SOCKET_BYTES = 1 << 20


class Definition(Protocol):
    """Something that gets a number: a connection or tags."""

    #: token of the recorder that knows the thing, and its number there
    announced: tuple[object, int]

    @property
    def of(self) -> Mapping[str, object]:
        """The fields that describe the thing."""


class Recorder(Ring):
    """A connected recorder: the ring it reads, and the socket for definitions."""

    __slots__ = ("_numbers", "_socket", "holds", "token")

    def __init__(self, path: str) -> None:
        """Connects. Raises OSError if nobody listens at `path`, and other errors without memfd."""
        self.token = object()  #: identifies this recorder without keeping its ring alive
        self.holds = 0  #: HOLDS if it wants only changes; 0 if it wants each call
        self._numbers = itertools.count(1)
        self._socket: Any = _socket.socket(
            _socket.AF_UNIX,
            _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK,
        )
        try:
            self._socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, SOCKET_BYTES)
            self._socket.connect(path)
            super().__init__()
            try:
                rights = array.array("i", [self.fd])
                self._socket.sendmsg([HELLO], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
            finally:
                self.handed_over()
        except BaseException:
            self._socket.close()
            raise

    def announce(self, what: str, definition: Definition) -> int:
        """Defines a connection or tags. Returns their number; 0 if there is no room."""
        number = next(self._numbers)
        message = json.dumps({what: number, "of": definition.of}, separators=(",", ":"))
        try:
            self._socket.send(
                message.encode("utf-8", "replace"), _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL
            )
        except OSError:
            return 0
        definition.announced = (self.token, number)
        return number

    def is_gone(self) -> bool:
        """Returns true if the recorder closed its socket: the only sign that it was killed."""
        if self.closed:
            return True
        try:
            return bool(self._socket.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT) == b"")
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Closes the socket only: other threads may still write into the mapping."""
        self._socket.close()
