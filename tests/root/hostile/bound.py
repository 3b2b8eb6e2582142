"""A root part whose command is this test, and processes of ordinary users for it to look at."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qjoule.root_part.protocol import Kind, ask

ROOT_PART = Path(sys.executable).parent / "qjoule-root"
PYTHON = "/usr/bin/python3"  #: that of the virtual environment may be where only root can read
USER, OTHER_USER = 64001, 64002
_END_S = 60

#: What the root part runs without rights: it gives its connection to the test, and waits.
_RELAY = """
import os, socket
test = socket.socket(fileno=0)
socket.send_fds(test, [b"."], [int(os.environ["QJOULE_ROOT_PART"])])
os.close(int(os.environ["QJOULE_ROOT_PART"]))
test.recv(1)
"""


class Running:
    """A root part that runs."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self.pid = process.pid
        self.connection = connection

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208

    @contextmanager
    def bound(
        self, pid: int, uid: int = USER, gid: int = USER, groups: tuple[int, ...] = ()
    ) -> Iterator[socket.socket]:
        """What an examiner of this process would hold."""
        packed = struct.pack(f"={len(groups)}I", *groups)
        reply = ask(
            self.connection,
            Kind.BIND,
            pid=pid,
            number=uid,
            flags=gid,
            size=len(packed),
            text=packed,
        )
        with socket.socket(fileno=reply.fd) as connection:
            yield connection


@contextmanager
def root_part(directory: Path) -> Iterator[Running]:
    """`directory`, which every user may read, is for the program that it runs."""
    relay = directory / "relay.py"
    relay.write_text(_RELAY)
    relay.chmod(0o644)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [str(ROOT_PART), PYTHON, "-I", str(relay), "record"]
    process = subprocess.Popen(words, stdin=theirs.fileno())
    theirs.close()
    try:
        with ours:
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
            assert fds, "the root part did not start its command"
            with socket.socket(fileno=fds[0]) as connection:
                yield Running(process, connection)
        process.wait(_END_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextmanager
def process_of(
    program: str, *, user: int = USER, arguments: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program of an ordinary user. It has begun: it said so by one line."""
    process = subprocess.Popen(
        [PYTHON, "-I", "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=user,
        group=user,
        extra_groups=[],
        cwd="/",
    )
    assert process.stdin
    assert process.stdout
    try:
        assert process.stdout.readline(), "the process of the test did not start"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        with suppress(BrokenPipeError):
            process.stdin.close()
