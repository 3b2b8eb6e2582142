# SPDX-License-Identifier: Apache-2.0
"""Names the frames of sampled stacks in a separate process, for `qjoule top --stacks` and the
agent.

Only that process reads the servers' files and demangles their names, which are untrusted. It has
descriptors of the files that servers have mapped, and of debug files. It is confined like the
processes that examine servers: it opens no other file, and its memory and time are limited. If it
fails, unnamed frames are shown as files and offsets. JIT-compiled code is in no file: it is named
by the process that lists it (`session/compiled_code.py`).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from qjoule.children import FIRST, fork_helper, wait_shortly
from qjoule.commands.frame_names import frame_names, load_all
from qjoule.contract import NODE
from qjoule.engine.stacks import Name, NotYetNamed, PlanNode
from qjoule.errors import QjouleError
from qjoule.process import hide
from qjoule.root_part.access import SocketAccess, bind_process
from qjoule.root_part.client import root_part
from qjoule.root_part.examiner import confine, limit
from qjoule.servers.access import Access, Opened, ProcFile, Unreadable
from qjoule.servers.direct_access import open_regular
from qjoule.servers.stack_tables import JIT_CODE, Mapped, mapped
from qjoule.servers.symbols import SHOWN_MAX, OpenFile, files_read
from qjoule.session.stacks import OpenTables
from qjoule.shapes.safe_text import sanitise
from qjoule.trace.meta import Module

_FRAME = struct.Struct("=IQ")  #: module, offset
_NAME_BYTES = 2048
_MOST_LINES = 8
_ANSWER_MAX = SHOWN_MAX + 24  #: characters: a name and an offset
#: Waiting time for all names together. Reading the symbols of a large server takes some seconds,
#: once. A share of the time that passes is added, for a long-running agent.
_PATIENCE_S, _PATIENCE_SHARE = 20.0, 0.01
#: Waiting time for one name. Most take less than 1 ms.
_MOMENT_S = 0.02
_CPU_S = 60
_REMEMBERED = 1 << 16
#: Open files at most, of the first modules. A process may have 1,024 descriptors.
_FILES_MAX = 768
READING = "reading the servers' symbols: newer samples are not shown yet"


class NamingProcess:
    """The command's side. `problem`: why frames get no names any more; '' if they do."""

    def __init__(self, tables: OpenTables) -> None:
        """Starts the process; this one may have one thread only. Raises `QjouleError`."""
        self.problem = ""
        self._files = {
            module.id: sanitise(module.path.rpartition("/")[2])[:200] for module in tables.modules
        }
        self._names: dict[tuple[int, int], str] = {}
        self._unnamed: dict[str, str] = {}  #: files without names, and why
        self._code = tables.code
        self._jit = frozenset(module.id for module in tables.modules if module.path == JIT_CODE)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, ExitStack() as stack:
            servers: dict[int, socket.socket] = {}
            for number, pid in enumerate(tables.pids):
                with suppress(QjouleError):  # the server has ended: its files are found by name
                    servers[number] = stack.enter_context(
                        bind_process(root_part().need("stacks"), pid)[1]
                    )
            descriptors = [theirs.fileno(), *(server.fileno() for server in servers.values())]
            self.pid = fork_helper(lambda: _serve(tables, list(servers)), descriptors)
        self._connection = ours
        self._patience_s = _PATIENCE_S
        self._pending: tuple[int, int] | None = None  #: the frame whose name is outstanding
        self._last_request_s = time.monotonic()

    def name(self, module: int, offset: int) -> str:
        """As `frame_names`. Raises `NotYetNamed` if that takes more than a moment."""
        key = module, offset
        if key not in self._names and module in self._jit:
            self._remember(key, self._compiled(*key))
        if key not in self._names and self._pending is not None:
            self._take_answer(self._pending)
        if key not in self._names:
            self._request_name(key)
            self._take_answer(key)
        return self._names[key]

    @property
    def missing(self) -> tuple[str, ...]:
        """Returns lines on what has no names, and why."""
        lines = [f"no functions' names in {file}: {why}" for file, why in self._unnamed.items()]
        if len(lines) > _MOST_LINES:
            lines[_MOST_LINES:] = [f"nor in {len(lines) - _MOST_LINES} more files"]
        status = self.problem or ("" if self._pending is None else READING)
        code = "" if self._code is None else self._code.problem
        return (*filter(None, [status, code]), *lines)

    def close(self) -> None:
        self._connection.close()
        wait_shortly(self.pid)

    def _request_name(self, key: tuple[int, int]) -> None:
        gained_s = (time.monotonic() - self._last_request_s) * _PATIENCE_SHARE
        self._patience_s = min(_PATIENCE_S, self._patience_s + gained_s)
        self._pending, self._last_request_s = key, time.monotonic()
        with suppress(OSError):  # the process has ended: there will be no answer
            self._connection.send(_FRAME.pack(*key))

    def _take_answer(self, key: tuple[int, int]) -> None:
        """Raises `NotYetNamed`."""
        answer = b"" if self.problem else self._answer()
        self._pending = None
        self._remember(key, self._parse_answer(*key, answer))

    def _remember(self, key: tuple[int, int], name: str) -> None:
        if len(self._names) >= _REMEMBERED:
            self._names.clear()
        self._names[key] = name

    def _compiled(self, module: int, number: int) -> str:
        """Raises `NotYetNamed`."""
        try:
            return (self._code and self._code.name(module, number)) or JIT_CODE
        except TimeoutError:
            raise NotYetNamed from None

    def _parse_answer(self, module: int, offset: int, answer: bytes) -> str:
        text, why = (
            sanitise(part.decode(errors="replace")) for part in answer.partition(b"\0")[::2]
        )
        if why and module in self._files:
            self._unnamed[self._files[module]] = why[:_ANSWER_MAX]
        if offset & NODE:  # the node's number is the tracer's, whatever the answer
            kind = text.rpartition(" #")[0][:_ANSWER_MAX] or "node"
            return PlanNode(f"{kind} #{offset & 0xFFFF_FFFF}")
        return text[:_ANSWER_MAX] or f"{self._files.get(module) or '(unknown file)'}+{offset:#x}"

    def _answer(self) -> bytes:
        """Returns '' if the process cannot name the frame, or has failed for good (`problem`)."""
        message = b""
        try:
            self._connection.settimeout(_MOMENT_S)
            message = self._connection.recv(_NAME_BYTES)
        except TimeoutError:
            if time.monotonic() - self._last_request_s < self._patience_s:
                raise NotYetNamed from None
            patience = f"{_PATIENCE_S:.0f} s in all and {_PATIENCE_SHARE:.0%} of the time"
            self._fail(f"reading servers' symbols takes more than {patience}")
            return b""
        except OSError:
            pass
        self._patience_s -= time.monotonic() - self._last_request_s
        if not message:
            self._fail("the process that reads servers' symbols has ended")
        return message[1:]

    def _fail(self, reason: str) -> None:
        """Gives up the process. It may not be signalled (`confine_reader`); it ends when it has its
        name or has used up its CPU time."""
        self.problem = f"some functions have no names: {reason}"
        self._connection.close()


def _serve(tables: OpenTables, servers: Sequence[int]) -> None:
    """The entire life of the naming process. `servers`: descriptors of their connections."""
    hide()
    load_all()
    whys: dict[int, str] = {}
    files: dict[Path, Opened] = {}
    modules = list(tables.modules)
    for descriptor, number in enumerate(servers, FIRST + 1):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, descriptor) as connection:
            modules = _open_maps(SocketAccess(connection), tables.of_server(number), modules, files)
    name = frame_names(modules, open_file=_hold_files(modules, files), unnamed=whys.__setitem__)
    limit(_CPU_S)
    with socket.socket(fileno=FIRST) as connection:
        confine()
        _answer_all(connection, name, whys)


def _answer_all(connection: socket.socket, name: Name, whys: dict[int, str]) -> None:
    broken: set[int] = set()
    while frame := connection.recvmsg(_FRAME.size)[0]:
        module, offset = _FRAME.unpack(frame)
        frame_name = ""
        try:
            frame_name = "" if module in broken else name(module, offset)
        except Exception:  # unforeseen; only the names of this file are lost
            broken.add(module)
            whys[module] = "its symbols cannot be read"
        text = f"={frame_name[:_ANSWER_MAX]}\0{whys.pop(module, '')[:_ANSWER_MAX]}"
        connection.sendmsg([text.encode(errors="replace")])


def _open_maps(
    access: Access, own_modules: Sequence[Module], modules: list[Module], files: dict[Path, Opened]
) -> list[Module]:
    """Opens the files that a server has mapped: a container's files have the same names as others.

    Adds them to `files` under unique names. Returns the modules with these names.
    """
    places: dict[str, Mapped] = {}
    for mapping in mapped(access.proc(ProcFile.MAPS)):
        if mapping.executable:
            places.setdefault(sanitise(mapping.name), mapping)
    paths = {module.id: module.path for module in modules}
    for module in own_modules:
        if len(files) < _FILES_MAX and (place := places.get(module.path)):
            with suppress(Unreadable):
                path = Path(f"/{module.id}{module.path}")
                files[path] = access.mapped(place.start, place.end)
                paths[module.id] = str(path)
    return [replace(module, path=paths[module.id]) for module in modules]


def _hold_files(modules: Sequence[Module], files: dict[Path, Opened]) -> OpenFile:
    """Opens the modules' other files now: later this process may open none."""
    refused: dict[Path, str] = {}
    for path in (path for module in modules for path in files_read(module.path, module.build_id)):
        if path not in files and len(files) < _FILES_MAX:
            try:
                files[path] = open_regular(path, str(path))
            except QjouleError as error:
                refused[path] = str(error)

    def again(path: Path, name: str) -> Opened:
        if path not in files:
            raise Unreadable(refused.get(path, f"{name} is one of too many files"))
        return replace(files[path], fd=os.dup(files[path].fd))

    return again
