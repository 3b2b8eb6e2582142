"""Meets the applications of this host and takes in what they say of their calls."""

from __future__ import annotations

import socket
import stat
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from qjoule.errors import QjouleError
from qjoule.tags.addresses import is_same_network
from qjoule.tags.application import Application
from qjoule.tags.ring import NotARing, Slots

DEFAULT_PATH = Path("/run/qjoule/tags.sock")
MAX_PROCESSES = 1024
#: Of the definitions that are remembered, of all processes: who has the most is let go.
MAX_BYTES = 64 << 20
POLL_S = 0.02


class Taker(Protocol):
    """Where records go."""

    def take(self, application: Application, records: Slots, now_ns: int) -> None:
        """Takes in a batch whose definitions have been read."""

    def wants_calls(self, application: Application) -> bool:
        """Whether each of its calls is to be told, rather than what changes."""

    @property
    def is_full(self) -> bool:
        """Whether records should stay in their rings for now."""

    def part(self, application: Application, now_ns: int) -> None:
        """The application has gone, or its ring is about to be let go."""


class Listener:
    """Accepts applications and polls them; `taker` is called in one thread at a time.

    with Listener(path, taker) as listener:
        listener.start()  # polls in a thread of its own
        listener.poll()   # all that was written before this call has been taken after it
    """

    def __init__(self, path: Path, taker: Taker, listening: socket.socket | None = None) -> None:
        """Listens at once. Raises QjouleError if another recorder does, or it cannot."""
        self.path = path
        self._taker = taker
        self._socket = listening or _listen(path)
        self._lock = threading.Lock()
        self._applications: list[Application] = []
        self._next = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._gone_lost = 0
        self.met = 0  #: applications so far
        self.refused = 0  #: connections and definitions that made no sense

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def lost(self) -> int:
        """Records that applications dropped, or that were lost on the way."""
        with self._lock:
            return self._gone_lost + sum(map(_lost_of, self._applications))

    def start(self) -> None:
        """Polls from now on, in a thread: a ring holds about a second of a busy program."""
        self._thread = threading.Thread(target=self._run, name="qjoule-tags", daemon=True)
        self._thread.start()

    def poll(self, make_room: Callable[[], None] | None = None) -> None:
        """Takes all that has been written, as far as the taker has room, or it can be made."""
        with self._lock:
            self._accept()
            now_ns = time.monotonic_ns()
            for at, application in enumerate(list(self._applications)):
                if self._taker.is_full:
                    if make_room is None:  # the next turn begins here
                        self._applications = self._applications[at:] + self._applications[:at]
                        break
                    make_room()
                self._poll(application, now_ns)
            self._bound()

    def close(self) -> None:
        """Stops, and tells the applications."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock:
            for application in list(self._applications):
                self._part(application)
        self._socket.close()
        # Without root's rights by now: what stays is replaced by the next recorder.
        with suppress(OSError):
            self.path.unlink()

    def _run(self) -> None:
        spent_s = 0.0
        # Half of a processor at most, whatever the applications do.
        while not self._stopping.wait(max(POLL_S, spent_s)):
            before_s = time.thread_time()
            self.poll()
            spent_s = time.thread_time() - before_s

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._socket.accept()
            except OSError:
                return
            if len(self._applications) >= MAX_PROCESSES:
                connected.close()
                self.refused += 1
                continue
            connected.setblocking(False)
            credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            self._next += 1
            pid = struct.unpack("=iII", credentials)[0]
            here = is_same_network(connected, self._socket)
            self._applications.append(Application(self._next, pid, connected, is_here=here))

    def _poll(self, application: Application, now_ns: int) -> None:
        try:
            if application.ring is None:
                if not application.greet():
                    return
                self.met += 1
            ring = application.ring
            assert ring is not None
            batches = list(ring.take(now_ns))
            # After the records: their definitions were sent before them.
            application.read_definitions()
            if application.ended:
                batches += ring.take(now_ns)  # what came in between is all there will be
            ring.ask(each_call=self._taker.wants_calls(application))
            for batch in batches:
                self._taker.take(application, batch, now_ns)
            # One that goes on after that meets us again, and tells all that holds to a new ring.
            if application.ended or ring.lost or application.definitions.is_full:
                self._part(application)
        except BlockingIOError:
            return
        except (NotARing, OSError):
            self.refused += 1
            self._part(application)

    def _bound(self) -> None:
        """Lets go of who defined the most, if all have defined too much."""
        if sum(application.definitions.bytes for application in self._applications) > MAX_BYTES:
            self.refused += 1
            self._part(max(self._applications, key=lambda one: one.definitions.bytes))

    def _part(self, application: Application) -> None:
        self._gone_lost += _lost_of(application)
        self.refused += application.definitions.refused
        self._applications.remove(application)
        # The time as it is by now: it may have made calls since this turn began.
        self._taker.part(application, time.monotonic_ns())
        application.close()


def _lost_of(application: Application) -> int:
    ring = application.ring
    return ring.lost + ring.told_lost if ring is not None else 0


def _listen(path: Path) -> socket.socket:
    """Listens at the path for every user of the host."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        _make_folder(path.parent)
        _make_room(path)
        server.bind(str(path))
        path.chmod(0o666)
        server.listen(128)
    except OSError as error:
        server.close()
        raise QjouleError(f"cannot listen for tags at {path}: {error.strerror}") from None
    except BaseException:
        server.close()
        raise
    return server


def _make_folder(folder: Path) -> None:
    """One that every user may enter, whatever the umask; one that exists stays as it is."""
    with suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o755)


def _make_room(path: Path) -> None:
    """Removes the socket of a recorder that is gone; leaves a living one's alone, and files."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise QjouleError(f"{path} is not a socket: remove it, or set QJOULE_TAGS_SOCKET")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass
    raise QjouleError(f"another recorder takes the tags: {path}")
