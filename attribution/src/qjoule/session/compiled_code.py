# SPDX-License-Identifier: Apache-2.0
"""Lists the code that JVMs compile: the tracer needs it to unwind stacks, and names come from it.

A process beside the recording reads each JVM's list of code repeatedly, and writes it into memory
that the tracer reads (`tracer/compiled.h`). Each piece of code has a number. A piece gets a name
only if it is still there when tracing has ended, or when the live view asks: then its address meant
this code ever since it was first listed.
The process has the JVMs' memory open for reading, and no rights. Its messages are untrusted.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from qjoule.children import FIRST, fork_helper, memory_to_share, wait_shortly
from qjoule.errors import QjouleError
from qjoule.process import hide
from qjoule.root_part.access import SocketAccess, bind_process
from qjoule.root_part.client import root_part
from qjoule.root_part.examiner import confine, limit
from qjoule.servers.jvm.code_cache import BLOBS_MAX
from qjoule.servers.jvm.hotspot import open_hotspot
from qjoule.servers.symbols import SHOWN_MAX
from qjoule.session.code_lists import FRAME_POINTERS, LISTS_BYTES, CodeLists
from qjoule.shapes.safe_text import sanitise
from qjoule.stream.names import CompiledCode

#: Time between two lists: a second, or so many times what the last list took.
_PAUSE_S, _PAUSE_SHARE = 1.0, 50
_WAIT_S = 15.0  #: for the first lists, and for all names: 20,000 take a second
_ROW = struct.Struct("=II")  #: module, number; the name follows
#: How long a live view waits for a name at a time. Most take less than 1 ms, but a new list longer.
_MOMENT_S = 0.02
_MESSAGE_BYTES = 4096
_NAME_BYTES = 512
_END = b"end"


@dataclass(frozen=True)
class Jvm:
    """A JVM to watch. `module`: the module number of frames in its code."""

    label: str
    module: int
    pid: int


class CodeWatch:
    """The command's end of the process. `descriptors`: memory for the tracer, one per JVM.
    `missing`: lines that name JVMs whose code is not listed. `problem`: why there are no names;
    empty if there are."""

    def __init__(self, jvms: Sequence[Jvm]) -> None:
        """Starts the process, and waits for the first lists. The caller must have one thread.

        Raises:
            QjouleError: a JVM has ended.
        """
        self._modules = frozenset(jvm.module for jvm in jvms)
        self.problem = ""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as stack:
            stack.enter_context(theirs)
            accesses = [
                stack.enter_context(bind_process(root_part().need("stacks"), jvm.pid)[1])
                for jvm in jvms
            ]
            self.descriptors = tuple(
                memory_to_share(f"code of {jvm.label}", LISTS_BYTES) for jvm in jvms
            )
            for descriptor in self.descriptors:  # the process that shares them can add no seal
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
            modules = [jvm.module for jvm in jvms]
            needed = [theirs.fileno(), *self.descriptors, *(access.fileno() for access in accesses)]
            self.pid = fork_helper(lambda: _serve(modules), needed)
        self._connection = ours
        self._pending: tuple[int, int] | None = None  #: the question without an answer yet
        self._pending_s = 0.0
        whys = self._received(time.monotonic() + _WAIT_S).split(b"\0")
        if len(whys) != len(jvms) + 1:
            self.problem = "what they compiled could not be listed"
            whys = [self.problem.encode() for _ in jvms]
        what = "callers of compiled Java code are unknown"
        self.missing = tuple(
            f"--stacks: {jvm.label}: {what}: {sanitise(why.decode(errors='replace'))[:SHOWN_MAX]}"
            for jvm, why in zip(jvms, whys, strict=False)
            if why
        )

    def unchanged(self) -> list[CompiledCode]:
        """Returns code that is still where it was first listed. Call it once, after tracing."""
        compiled: list[CompiledCode] = []
        deadline_s = time.monotonic() + _WAIT_S
        with suppress(OSError):
            self._connection.send(_END)
        while not self.problem and (row := self._received(deadline_s)) != _END:
            if len(row) <= _ROW.size or len(compiled) >= BLOBS_MAX * len(self._modules):
                self.problem = "what they compiled could not be listed again"
                return []
            module, number = _ROW.unpack_from(row)
            name = sanitise(row[_ROW.size :].decode(errors="replace"))[:SHOWN_MAX]
            if module in self._modules and name:
                compiled.append(CompiledCode(module, number, name))
        return compiled

    def name(self, module: int, number: int) -> str:
        """Returns the name of code that is still where it was first listed; empty if it is not, or
        if the process has ended.

        Raises:
            TimeoutError: the answer takes longer; the caller may ask again.
        """
        if self._pending not in (None, (module, number)):
            self._receive_name()  # to an earlier question; its caller asks again
        if self._pending is None and not self.problem:
            self._pending, self._pending_s = (module, number), time.monotonic()
            with suppress(OSError):  # the process has ended
                self._connection.send(_ROW.pack(module, number))
        return self._receive_name()

    def _receive_name(self) -> str:
        """Waits for the name that was asked for. Raises `TimeoutError`."""
        reply = b""
        if not self.problem:
            try:
                self._connection.settimeout(_MOMENT_S)
                reply = self._connection.recv(_MESSAGE_BYTES)
            except TimeoutError:
                if time.monotonic() - self._pending_s < _WAIT_S:
                    raise
            except OSError:
                pass
            if len(reply) < _ROW.size:
                self.problem = "compiled Java code has no names: the process that lists it is gone"
        self._pending = None
        return sanitise(reply[_ROW.size :].decode(errors="replace"))[:SHOWN_MAX]

    def close(self) -> None:
        self._connection.close()
        wait_shortly(self.pid)
        for descriptor in self.descriptors:
            os.close(descriptor)

    def _received(self, deadline_s: float) -> bytes:
        """Returns a message; empty if nothing came in time."""
        try:
            self._connection.settimeout(max(0.01, deadline_s - time.monotonic()))
            return self._connection.recv(_MESSAGE_BYTES)
        except OSError:
            return b""


def _serve(modules: Sequence[int]) -> None:
    """Runs the process: it has a socket, the shared memory, and a socket per JVM."""
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
                lists.append(_open_lists(stack, module, room, access))
                if not lists[-1].frame_pointers:
                    why = f"start it with -XX:+{FRAME_POINTERS}"
            except QjouleError as error:
                why = str(error)
            whys.append(why[:SHOWN_MAX].replace("\0", " ").encode(errors="replace"))
        connection.sendmsg([b"\0".join((*whys, b""))])
        if _watch(connection, lists):
            _send_names(connection, lists)


def _open_lists(stack: ExitStack, module: int, room: mmap.mmap, access: socket.socket) -> CodeLists:
    """Opens a JVM's memory and makes its lists. Raises `QjouleError`."""
    with access:
        process = SocketAccess(access)
        process.executable().close()  # memory can be opened only after the executable
        jvm, memory = stack.enter_context(open_hotspot(process))
    return CodeLists(room, module, jvm, memory)


def _watch(connection: socket.socket, lists: list[CodeLists]) -> bool:
    """Updates the lists, and answers requests for single names. Returns true if all names are
    wanted, false if the command has ended."""
    by_module = {code.module: code for code in lists}
    ready = select.poll()
    ready.register(connection, select.POLLIN)
    next_s = time.monotonic() + _PAUSE_S
    while True:
        wait_s = next_s - time.monotonic()
        if wait_s <= 0:
            begin_s = time.process_time()
            for code in lists:
                with suppress(QjouleError):  # the JVM has ended
                    code.update()
            took_s = time.process_time() - begin_s
            next_s = time.monotonic() + max(_PAUSE_S, _PAUSE_SHARE * took_s)
        elif ready.poll(wait_s * 1000):
            question = connection.recvmsg(_ROW.size)[0]
            if len(question) != _ROW.size:
                return question == _END
            module, number = _ROW.unpack(question)
            name = by_module[module].name(number) if module in by_module else ""
            connection.sendmsg([question + name.encode(errors="replace")[:_NAME_BYTES]])


def _send_names(connection: socket.socket, lists: Sequence[CodeLists]) -> None:
    for code in lists:
        with suppress(QjouleError):  # the JVM has ended
            for number, name in code.names():
                encoded = name.encode(errors="replace")[:_NAME_BYTES]
                connection.sendmsg([_ROW.pack(code.module, number) + encoded])
    connection.sendmsg([_END])
