# SPDX-License-Identifier: Apache-2.0
"""Names the frames of sampled stacks in a process of its own, for `qjoule top --stacks`.

That process alone reads the servers' files and demangles their names, which are a stranger's. It
has no rights, no descriptor but one, and its memory and time are limited. If it fails, frames that
it has not named are files and offsets.
"""

from __future__ import annotations

import signal
import socket
import struct
import time
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
_SHOWN_MAX = 224  #: characters of a name: 200, as in `Symbols`, and an offset
#: For all names together: meanwhile nobody reads the stream. Reading the symbols of a large server
#: takes some seconds, once.
_PATIENCE_S = 20.0
_CPU_S = 60
_REMEMBERED = 1 << 16


class NamingProcess:
    """The command's end. `problem`: why frames have no names; empty: they have."""

    def __init__(self, modules: Sequence[Module]) -> None:
        """Starts it, while this process has one thread. Raises `QjouleError`."""
        self.problem = ""
        self._files = {one.id: sanitise(one.path.rpartition("/")[2])[:200] for one in modules}
        self._names: dict[tuple[int, int], str] = {}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._pid = fork_helper(lambda: _serve(modules), [theirs.fileno()])
        self._connection = ours
        self._patience_s = _PATIENCE_S

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
        said = b"" if self.problem else self._answer(_FRAME.pack(module, offset))
        text = sanitise(said.decode(errors="replace"))
        if offset & NODE:  # its number is the tracer's, whatever was said
            kind = text.rpartition(" #")[0][:_SHOWN_MAX] or "node"
            return PlanNode(f"{kind} #{offset & 0xFFFF_FFFF}")
        return text[:_SHOWN_MAX] or f"{self._files.get(module) or '(unknown file)'}+{offset:#x}"

    def _answer(self, frame: bytes) -> bytes:
        """Empty: the process cannot name the frame, or has failed for good (`problem`)."""
        said, began_s = b"", time.monotonic()
        with suppress(OSError):
            self._connection.settimeout(max(0.0, self._patience_s))
            self._connection.send(frame)
            said = self._connection.recv(_NAME_BYTES)
        self._patience_s -= time.monotonic() - began_s
        if not said:
            late = f"reading servers' symbols takes more than {_PATIENCE_S:.0f} s in all"
            ended = "the process that reads servers' symbols has ended"
            self._fail(late if self._patience_s <= 0 else ended)
        return said[1:]

    def _fail(self, reason: str) -> None:
        """This process may send no signal (`confine_reader`); that one ends by its own clock."""
        self.problem = f"some functions have no names: {reason}"
        self._connection.close()


def _serve(modules: Sequence[Module]) -> None:
    """The whole life of the other process."""
    hide()
    limit(_CPU_S)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    name = frame_names(modules)
    confine_reader()
    broken: set[int] = set()
    with socket.socket(fileno=FIRST) as connection:
        while frame := connection.recv(_FRAME.size):
            module, offset = _FRAME.unpack(frame)
            said = ""
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)
            try:
                said = "" if module in broken else name(module, offset)
            except Exception:  # nobody foresaw it; it costs the names of this file alone
                broken.add(module)
            signal.setitimer(signal.ITIMER_REAL, 0)
            connection.send(b"=" + said[:_SHOWN_MAX].encode(errors="replace"))
