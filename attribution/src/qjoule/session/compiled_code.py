# SPDX-License-Identifier: Apache-2.0
"""Lists what JVMs compile, for the tracer to follow stacks by, and for its names.

A process beside the recording reads each JVM's list of code again and again, and writes it into
memory that the tracer reads (`tracer/compiled.h`). Each piece of code has a number. One that is
still there when tracing has ended was what it is since it was listed first: it alone gets a name.
The process has the JVMs' memory open for reading, and no rights; what it says are a stranger's
words.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from qjoule.children import FIRST, fork_helper, wait_shortly
from qjoule.errors import QjouleError
from qjoule.process import hide
from qjoule.root_part.access import SocketAccess, bound
from qjoule.root_part.client import root_part
from qjoule.root_part.examiner import confine, limit
from qjoule.servers.jvm.code_cache import BLOBS_MAX, Code, CodeCache, CodeKind
from qjoule.servers.jvm.hotspot import HotSpot, Memory, open_hotspot
from qjoule.servers.symbols import SHOWN_MAX
from qjoule.shapes.safe_text import sanitise
from qjoule.stream.names import CompiledCode

#: struct compiled_lists without its lists; struct compiled_list without its code; compiled_code
HEAD, LIST, CODE = struct.Struct("<IIQ"), struct.Struct("<IIQ"), struct.Struct("<QQ6I")
MAGIC = 0x31434A51
_LIST_BYTES = LIST.size + BLOBS_MAX * CODE.size
LISTS_BYTES = HEAD.size + 2 * _LIST_BYTES
_TURN = 8  #: its place
FRAME_POINTERS = "PreserveFramePointer"
#: Between two lists: a second, or so many times what it took to make one.
_PAUSE_S, _PAUSE_SHARE = 1.0, 50
_WAIT_S = 15.0  #: for the first lists, and for the names: 20,000 take a second
_ROW = struct.Struct("=II")  #: module, number; the name follows
_MESSAGE_BYTES = 4096
_NAME_BYTES = 512
_END = b"end"


@dataclass(frozen=True)
class Jvm:
    """`module`: the number of frames in its code."""

    label: str
    module: int
    pid: int


class CodeWatch:
    """The command's end. `descriptors`: of the memory for the tracer, one per JVM. `missing`: lines
    that say whose code is not followed. `problem`: why there are no names; empty: there will be.
    """

    def __init__(self, jvms: Sequence[Jvm]) -> None:
        """Starts the process, and waits for the first lists. This process has one thread.

        Raises:
            QjouleError: a JVM has ended.
        """
        self._modules = frozenset(one.module for one in jvms)
        self.problem = ""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as kept:
            kept.enter_context(theirs)
            accesses = [
                kept.enter_context(bound(root_part().need("stacks"), one.pid)[1]) for one in jvms
            ]
            self.descriptors = tuple(_memory(one) for one in jvms)
            modules = [one.module for one in jvms]
            needed = [theirs.fileno(), *self.descriptors, *(one.fileno() for one in accesses)]
            self.pid = fork_helper(lambda: _serve(modules), needed)
        self._connection = ours
        whys = self._received(time.monotonic() + _WAIT_S).split(b"\0")
        if len(whys) != len(jvms) + 1:
            self.problem = "what they compiled could not be listed"
            whys = [self.problem.encode() for _ in jvms]
        what = "callers of compiled Java code are unknown"
        self.missing = tuple(
            f"--stacks: {one.label}: {what}: {sanitise(why.decode(errors='replace'))[:SHOWN_MAX]}"
            for one, why in zip(jvms, whys, strict=False)
            if why
        )

    def unchanged(self) -> list[CompiledCode]:
        """What is still where it was listed first. To be called once, when tracing has ended."""
        found: list[CompiledCode] = []
        deadline_s = time.monotonic() + _WAIT_S
        with suppress(OSError):
            self._connection.send(_END)
        while not self.problem and (row := self._received(deadline_s)) != _END:
            if len(row) <= _ROW.size or len(found) >= BLOBS_MAX * len(self._modules):
                self.problem = "what they compiled could not be listed again"
                return []
            module, number = _ROW.unpack_from(row)
            name = sanitise(row[_ROW.size :].decode(errors="replace"))[:SHOWN_MAX]
            if module in self._modules and name:
                found.append(CompiledCode(module, number, name))
        return found

    def close(self) -> None:
        self._connection.close()
        wait_shortly(self.pid)
        for descriptor in self.descriptors:
            os.close(descriptor)

    def _received(self, deadline_s: float) -> bytes:
        """Empty: nothing came in time."""
        try:
            self._connection.settimeout(max(0.01, deadline_s - time.monotonic()))
            return self._connection.recv(_MESSAGE_BYTES)
        except OSError:
            return b""


def _memory(jvm: Jvm) -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    descriptor = os.memfd_create(f"code of {jvm.label}"[:200], flags)
    os.ftruncate(descriptor, LISTS_BYTES)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


@dataclass
class CodeLists:
    """The lists of one JVM in the process that makes them. `room`: shared with the tracer."""

    room: mmap.mmap
    module: int
    jvm: HotSpot
    memory: Memory
    frame_pointers: bool = False
    _listed: dict[int, _Listed] = field(default_factory=dict)  #: by block
    _last: int = 0  #: number

    def __post_init__(self) -> None:
        """Raises `QjouleError`: its code cannot be listed."""
        self._cache = CodeCache(self.jvm, self.memory)
        self.frame_pointers = self.jvm.flag(FRAME_POINTERS)
        self.room[: HEAD.size] = HEAD.pack(MAGIC, self.module, 0)
        self.update()

    def update(self) -> None:
        """Writes the list that counts from now on. Raises `QjouleError`: it cannot be read."""
        self.memory.begin()
        code = self._cache.code()
        now_ns = time.monotonic_ns()
        listed: dict[int, _Listed] = {}
        for one in code:
            known = self._listed.get(one.block)
            if known is None or known.code is not one:
                self._last += 1
                known = _Listed(one, self._last, _packed(one, self._last, now_ns))
            listed[one.block] = known
        self._listed = listed
        rows = b"".join([one.row for one in listed.values()])
        turn = int.from_bytes(self.room[_TURN : HEAD.size], "little") + 1
        at = HEAD.size + turn % 2 * _LIST_BYTES
        head = LIST.pack(len(code), int(self.frame_pointers), self._cache.call_stub)
        self.room[at : at + LIST.size + len(rows)] = head + rows
        self.room[_TURN : HEAD.size] = turn.to_bytes(8, "little")

    def names(self) -> Iterator[tuple[int, str]]:
        """Number and name of what is still there. Raises `QjouleError`."""
        self.memory.begin()
        for code in self._cache.code():
            listed = self._listed.get(code.block)
            if listed is None or listed.code is not code or code.kind is CodeKind.OTHER:
                continue
            if name := self._cache.name(code):
                yield listed.number, name


class _Listed(NamedTuple):
    """`row`: struct compiled_code."""

    code: Code
    number: int
    row: bytes


def _packed(code: Code, number: int, since_ns: int) -> bytes:
    size = code.end - code.begin
    sizes = size, code.frame_words, code.complete, code.kind
    return CODE.pack(code.begin, since_ns, *sizes, number, 0)


def _serve(modules: Sequence[int]) -> None:
    """The whole life of the process: it has a socket, the rooms, and a socket per JVM."""
    hide()
    limit()
    count = len(modules)
    connection = socket.socket(fileno=FIRST)
    rooms = [mmap.mmap(FIRST + 1 + at, LISTS_BYTES) for at in range(count)]
    accesses = [socket.socket(fileno=FIRST + 1 + count + at) for at in range(count)]
    with ExitStack() as stack:
        confine()
        lists: list[CodeLists] = []
        whys = []
        for module, room, access in zip(modules, rooms, accesses, strict=True):
            why = ""
            try:
                lists.append(_begun(stack, module, room, access))
                if not lists[-1].frame_pointers:
                    why = f"start it with -XX:+{FRAME_POINTERS}"
            except QjouleError as error:
                why = str(error)
            whys.append(why[:SHOWN_MAX].replace("\0", " ").encode(errors="replace"))
        connection.sendmsg([b"\0".join((*whys, b""))])
        if _watch(connection, lists):
            _tell(connection, lists)


def _begun(stack: ExitStack, module: int, room: mmap.mmap, access: socket.socket) -> CodeLists:
    """Raises `QjouleError`."""
    with access:
        own = SocketAccess(access)
        own.executable().close()  # its memory is only open to who has seen what it runs
        jvm, memory = stack.enter_context(open_hotspot(own))
    return CodeLists(room, module, jvm, memory)


def _watch(connection: socket.socket, lists: list[CodeLists]) -> bool:
    """Keeps the lists up to date. Returns whether the names are wanted; else the command ended."""
    ready = select.poll()
    ready.register(connection, select.POLLIN)
    pause_s = _PAUSE_S
    while not ready.poll(pause_s * 1000):
        begin_s = time.process_time()
        for one in lists:
            with suppress(QjouleError):  # it has ended
                one.update()
        pause_s = max(_PAUSE_S, _PAUSE_SHARE * (time.process_time() - begin_s))
    return connection.recvmsg(len(_END))[0] == _END


def _tell(connection: socket.socket, lists: Sequence[CodeLists]) -> None:
    for one in lists:
        with suppress(QjouleError):  # it has ended
            for number, name in one.names():
                encoded = name.encode(errors="replace")[:_NAME_BYTES]
                connection.sendmsg([_ROW.pack(one.module, number) + encoded])
    connection.sendmsg([_END])
