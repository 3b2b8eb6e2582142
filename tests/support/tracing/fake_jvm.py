# SPDX-License-Identifier: Apache-2.0
"""A process that answers a process that attaches as a JVM does, or as none should.

    python fake_jvm.py ROOT UID GID BEHAVIOUR

It has ROOT for its root directory and runs as that user. Standard output: `ready`; `asked` when a
command has arrived; `released` once the other end of the lease is closed. It ends at the end of its
standard input.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

NAME = Path(f"/tmp/.java_pid{os.getpid()}")
TRIGGER = Path(f"/tmp/.attach_pid{os.getpid()}")
LIBRARY = "libqjoule_agent.so"
#: File names in the loader's directory.
FILES = ("qjoule-agent.jar", "hooks.jar", LIBRARY, "lease", "status", "tags")

mapped: list[mmap.mmap] = []


def say(word: str) -> None:
    print(word, flush=True)


def map_file(path: Path) -> None:
    with path.open("rb") as stream:
        protection = mmap.PROT_READ | mmap.PROT_EXEC
        mapped.append(mmap.mmap(stream.fileno(), 0, mmap.MAP_PRIVATE, protection))


def good(connection: socket.socket, directory: Path) -> None:
    with (directory / "lease").open("rb") as lease:
        map_file(directory / LIBRARY)
        tags = (directory / "tags").exists()
        (directory / "status").write_text("ok")
        connection.sendall(b"0\nreturn code: 0\n")
        connection.close()
        lease.read()
    say("released, tags" if tags else "released")


def flood(connection: socket.socket, _directory: Path) -> None:
    while True:
        connection.sendall(b"0" * 65536)


def silent(_connection: socket.socket, _directory: Path) -> None:
    forever.wait()


def with_status(make: Callable[[Path], object]) -> Callable[[socket.socket, Path], None]:
    def behave(connection: socket.socket, directory: Path) -> None:
        make(directory / "status")
        connection.sendall(b"0\n0\n")

    return behave


def moved(connection: socket.socket, directory: Path) -> None:
    """Puts another directory in the place of the loader's, with files of the same names."""
    directory.rename(directory.with_name("moved"))
    directory.symlink_to("/victim")
    connection.sendall(b"0\n0\n")


def directories(connection: socket.socket, directory: Path) -> None:
    for name in FILES:
        (directory / name).unlink(missing_ok=True)
        (directory / name / "more").mkdir(parents=True)
    connection.sendall(b"0\n0\n")


def changed(connection: socket.socket, directory: Path) -> None:
    """The library that it was given, with different content."""
    with (directory / LIBRARY).open("r+b") as stream:
        stream.write(b"other")
    good(connection, directory)


BEHAVIOURS: dict[str, Callable[[socket.socket, Path], None]] = {
    "good": good,
    "flood": flood,
    "silent": silent,
    "status-fifo": with_status(os.mkfifo),
    "status-link": with_status(lambda path: path.symlink_to("/victim/status")),
    "status-long": with_status(lambda path: path.write_bytes(b"\x1b[2J " + b"x" * (8 << 20))),
    "moved": moved,
    "directories": directories,
    "changed": changed,
}
forever = threading.Event()


def serve(behave: Callable[[socket.socket, Path], None]) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(NAME))
        listening.listen()
        connection, _ = listening.accept()
    with connection:
        request = b""
        while request.count(b"\0") < 5:
            request += connection.recv(4096)
        say("asked")
        behave(connection, Path(os.fsdecode(request.split(b"\0")[4].partition(b"=")[2])))


def main() -> None:
    root, uid, gid, behaviour = sys.argv[1:]
    os.chroot(root)
    os.chdir("/")
    os.setgroups([])
    os.setresgid(int(gid), int(gid), int(gid))
    os.setresuid(int(uid), int(uid), int(uid))
    if behaviour == "mapping":
        map_file(Path("/") / LIBRARY)
    elif behaviour != "deaf":
        thread = threading.Thread(target=serve, args=(BEHAVIOURS[behaviour],), daemon=True)
        signal.signal(signal.SIGQUIT, lambda *_: thread.start() if TRIGGER.exists() else None)
    say("ready")
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
