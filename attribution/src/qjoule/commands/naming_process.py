# SPDX-License-Identifier: Apache-2.0
"""Names the frames of sampled stacks in a process of its own, for `qjoule top --stacks`.

That process alone reads the servers' files and demangles their names, which are a stranger's. It
has no rights, no descriptor but one, and its memory is limited. If it fails, frames have no names.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from qjoule.children import FIRST, fork_helper, wait_shortly
from qjoule.commands.frame_names import frame_names
from qjoule.contract import NODE
from qjoule.engine.stacks import PlanNode
from qjoule.process import hide
from qjoule.root_part.examiner import limit
from qjoule.root_part.reader_filter import confine_reader
from qjoule.shapes.safe_text import sanitise
from qjoule.trace.meta import Module

_FRAME = struct.Struct("=IQ")  #: module, offset
_NAME_BYTES = 1024
#: Reading the symbols of a large server takes some seconds, once.
_PATIENCE_S = 20.0
_REMEMBERED = 1 << 16


class NamingProcess:
    """The command's end. `problem`: why frames have no names; empty: they have."""

    def __init__(self, modules: Sequence[Module]) -> None:
        """Starts it, while this process has one thread. Raises `QjouleError`."""
        self.problem = ""
        self._files = {one.id: sanitise(one.path.rpartition("/")[2]) for one in modules}
        self._names: dict[tuple[int, int], str] = {}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._pid = fork_helper(lambda: _serve(modules), [theirs.fileno()])
        ours.settimeout(_PATIENCE_S)
        self._connection = ours

    def name(self, module: int, offset: int) -> str:
        """As `frame_names`."""
        key = module, offset
        if key not in self._names:
            if len(self._names) >= _REMEMBERED:
                self._names.clear()
            self._names[key] = self._ask(module, offset)
        return self._names[key]

    def close(self) -> None:
        self._connection.close()
        wait_shortly(self._pid)

    def _ask(self, module: int, offset: int) -> str:
        said = b""
        if not self.problem:
            with suppress(OSError):
                self._connection.send(_FRAME.pack(module, offset))
                said = self._connection.recv(_NAME_BYTES)
            if not said:
                self._fail()
        text = sanitise(said.decode(errors="replace"))
        if offset & NODE:  # its number is the tracer's, whatever was said
            kind = text.rpartition(" #")[0] or "node"
            return PlanNode(f"{kind} #{offset & 0xFFFF_FFFF}")
        return text or f"{self._files.get(module) or '(unknown file)'}+{offset:#x}"

    def _fail(self) -> None:
        self.problem = "functions have no names: the process that reads servers' symbols has failed"
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


def _serve(modules: Sequence[Module]) -> None:
    """The whole life of the other process."""
    hide()
    limit()
    name = frame_names(modules)
    confine_reader()
    with socket.socket(fileno=FIRST) as connection:
        while frame := connection.recv(_FRAME.size):
            connection.send(name(*_FRAME.unpack(frame)).encode(errors="replace")[:_NAME_BYTES])
