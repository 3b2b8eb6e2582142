# SPDX-License-Identifier: Apache-2.0
"""How `qjoule dump` asks a flight recorder to save: by a socket in the recorder's directory.

Only who started the recorder and root may ask. The recorder's process is known from the socket
itself (SO_PEERCRED, unix(7)), so a process id is proven to be its own, not of another process.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.servers.processes import asking_user
from qjoule.spool.files import PART, RingFiles
from qjoule.spool.recorder import Recorder, SaveRequest
from qjoule.spool.save import Saved
from qjoule.typed_json import read_as

_SAVE = b"save\n"
_OWN_USERS = range(2_100_000_000, 2_104_194_305)  #: of recorders (tracer/root/user.c)
_CREDENTIALS = struct.Struct("3i")  #: struct ucred: pid, uid, gid
_MOST_BYTES = 64 << 10
#: Timeouts of a request, of one by a peer that may not ask, and of a save.
_HEAR_S, _STRANGER_S, _SAVE_S = 5.0, 0.5, 600.0


@dataclass(frozen=True)
class SaveReply:
    """The outcome of a request: `directory` below the recorder's, or an error."""

    directory: str = ""
    seconds: float = 0.0
    late: int = 0
    error: str = ""


class DumpSocket:
    """Listens for requests. `start` begins to answer them, in a thread."""

    def __init__(self, trace: Path, recorder: Recorder) -> None:
        """Binds the socket, for who owns the directory. Raises QjouleError."""
        self._recorder = recorder
        self._path = RingFiles(trace).socket
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        ours = trace.stat().st_uid == os.getuid()
        before = os.umask(0o177 if ours else 0o111)
        try:
            self._socket.bind(str(self._path))  # relative: a path in an address has 107 bytes
            self._socket.listen(8)
        except OSError as error:
            where = self._path.absolute()
            raise QjouleError(f"cannot listen on {where}: {error.strerror}") from None
        finally:
            os.umask(before)

    def start(self) -> None:
        threading.Thread(target=self._serve, name="dump", daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with suppress(OSError):
            self._path.unlink()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:  # closed
                return
            with peer, suppress(OSError):
                peer.sendall(json.dumps(asdict(self._answer(peer))).encode())

    def _answer(self, peer: socket.socket) -> SaveReply:
        pid, uid = _peer_credentials(peer)
        may_ask = uid in (0, os.getuid(), asking_user())
        peer.settimeout(_HEAR_S if may_ask else _STRANGER_S)
        # Read it even if the peer may not ask: closing before it is sent would lose our answer.
        request = peer.recv(len(_SAVE), socket.MSG_WAITALL)
        if not may_ask:
            return SaveReply(error="not saved: only who started the recorder and root may ask")
        if request != _SAVE:
            return SaveReply(error="not saved: that is no request")
        results: list[Saved | str] = []
        done = threading.Event()

        def answer(result: Saved | str) -> None:
            results.append(result)
            done.set()

        self._recorder.ask(SaveRequest("dump", f"qjoule dump, process {pid}", answer=answer))
        if not done.wait(_SAVE_S):
            return SaveReply(error=f"no answer within {_SAVE_S:g} s: see what the recorder says")
        result = results[0]
        if isinstance(result, str):
            return SaveReply(error=result)
        return SaveReply(result.directory.name, result.seconds, result.late)


def ask_for_save(trace: Path, pid: int | None = None) -> SaveReply | None:
    """Has a recorder save, and waits for it. None: no recorder runs in this directory.

    Args:
        pid: the recorder must be this process.

    Raises:
        QjouleError: it may not be asked, or does not answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_SAVE_S + _HEAR_S)
        try:
            _connect(asking, trace)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except PermissionError:
            raise QjouleError(
                f"not permitted: {trace} belongs to another user: try with sudo"
            ) from None
        except OSError as error:
            raise QjouleError(f"{trace}: {error.strerror}") from None
        process, uid = _peer_credentials(asking)
        # A recorder with its own user is the directory's group meanwhile (tracer/root/user.c).
        about = trace.stat()
        if uid not in (0, about.st_uid) and not (uid == about.st_gid and uid in _OWN_USERS):
            raise QjouleError(f"{trace}: who listens there is not its owner")
        if pid is not None and process != pid:
            raise QjouleError(f"process {pid} is not the recorder of {trace}")
        try:
            asking.sendall(_SAVE)
            text = _read_all(asking)
        except OSError as error:
            raise QjouleError(f"the recorder of {trace} does not answer: {error}") from None
    try:
        answer: SaveReply = read_as(SaveReply, json.loads(text), "the answer")
    except (ValueError, RecursionError):
        raise QjouleError(f"the recorder of {trace} ended before it answered") from None
    if not answer.error and not PART.fullmatch(answer.directory):
        raise QjouleError(f"the recorder of {trace} names no part of its recording")
    return answer


def directory_of(pid: int) -> tuple[Path, int]:
    """The directory of a recorder, and its process: `pid` or one that it has started (sudo).

    Raises:
        QjouleError: there is no such process, it is no recorder, or we may not read its /proc.
    """
    denied = False
    for process in _with_children(pid):
        try:
            where = Path(f"/proc/{process}/cwd").readlink()
        except PermissionError:
            denied = True
            continue
        except OSError:
            continue
        if RingFiles(where).are_there and _listening_process(where) == process:
            return where, process
    if not Path(f"/proc/{pid}").exists():
        raise QjouleError(f"there is no process {pid}")
    if denied:
        raise QjouleError(f"not permitted: process {pid} is another user's: try with sudo")
    raise QjouleError(f"process {pid} is no flight recorder (`qjoule record --keep`)")


def _with_children(pid: int) -> list[int]:
    processes = [pid]
    for process in processes:
        with suppress(OSError, ValueError):
            children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
            processes += [int(child) for child in children if int(child) not in processes]
        if len(processes) > 64:  # a recorder has a handful
            break
    return processes


def _listening_process(trace: Path) -> int | None:
    """The process that listens in a directory; None: none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking, suppress(OSError):
        asking.settimeout(_HEAR_S)
        _connect(asking, trace)
        return _peer_credentials(asking)[0]
    return None


def _connect(asking: socket.socket, trace: Path) -> None:
    """Connects by a short path: an address holds 107 bytes."""
    folder = os.open(RingFiles(trace).folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        asking.connect(f"/proc/self/fd/{folder}/{RingFiles(trace).socket.name}")
    finally:
        os.close(folder)


def _peer_credentials(connected: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the other end: of a listener, of the process that listens."""
    size = _CREDENTIALS.size
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid


def _read_all(connected: socket.socket) -> bytes:
    pieces = b""
    while len(pieces) < _MOST_BYTES and (piece := connected.recv(4096)):
        pieces += piece
    return pieces
