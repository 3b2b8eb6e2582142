# SPDX-License-Identifier: Apache-2.0
"""What may be requested on the socket bound to one process, and how much of it."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from nightly.hostile.bound import (
    USER,
    WAIT,
    Running,
    candidate,
    mapping_of,
    process_of,
    written,
)
from qjoule.root_part.protocol import MAX_KEPT, Kind, Refused, RootPartGone, What, ask
from qjoule.servers.access import Unreadable, opened

pytestmark = [pytest.mark.beside, pytest.mark.root]

_REQUEST_BYTES = 32 + 4096


def errno_of(connection: socket.socket, kind: Kind, **about: object) -> int:
    with pytest.raises(Refused) as refused:
        ask(connection, kind, **about)  # type: ignore[arg-type]
    return refused.value.errno


def test_nothing_is_left_of_what_was_asked(root: Running, files: Path) -> None:
    path = written(files / "file")
    with candidate(root) as access:
        access.executable().close()
        descriptors, children = root.descriptors, root.children
        for _ in range(100):
            access.executable().close()
            assert access.file(path)
            assert access.names(str(files))
            with pytest.raises(Unreadable):
                access.file("/dev/zero")
            with pytest.raises(Unreadable):
                access.mapped(1, 2)
        assert root.descriptors == descriptors
        # The answer comes before the end of a child, which is waited for afterwards.
        while root.children != children:
            assert access.file_id(path)


def test_one_process_is_given_few_handles(root: Running, files: Path) -> None:
    """There is room for a few hundred, for all candidates together."""
    program = (
        "import mmap, os, sys; paths = sys.argv[1:];"
        "maps = [mmap.mmap(os.open(p, 0), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ) for p in paths];"
        f"{WAIT}"
    )
    paths = [written(files / f"library{n}", bytes([n]) * 4096, 0o755) for n in range(20)]
    with candidate(root, program, *paths) as access:
        handles = []
        for path in paths:
            with opened(mapping_of(access, path)) as found:
                handles.append(found.handle)
                assert os.pread(found.fd, 4096, 0)
    assert all(handles[:MAX_KEPT])
    assert len(set(handles[:MAX_KEPT])) == MAX_KEPT
    assert not any(handles[MAX_KEPT:])


@pytest.mark.parametrize(
    "name", ["", "mem", "fd/0", "exe", "root/etc/passwd", "../1/environ", "net/../environ", "stat "]
)
def test_only_known_files_of_proc_are_opened(root: Running, name: str) -> None:
    with process_of(WAIT) as process, root.bound(process.pid) as bound:
        about = {"number": What.PROC, "text": name.encode()}
        assert errno_of(bound, Kind.OPEN, **about) == errno.EACCES
        assert errno_of(bound, Kind.OPEN, number=99) == errno.EINVAL


def test_one_process_is_all_that_its_socket_reaches(root: Running) -> None:
    with process_of(WAIT) as process, root.bound(process.pid) as bound:
        for kind in set(Kind) - {Kind.OPEN}:
            assert errno_of(bound, kind, pid=1, text=b"/usr/bin/sleep") == errno.EPERM
        # The process in the request is ignored.
        reply = ask(bound, Kind.OPEN, pid=1, number=What.PROC, text=b"stat")
        assert os.read(reply.fd, 20).startswith(str(process.pid).encode())
        os.close(reply.fd)


@pytest.mark.parametrize("size", [1, _REQUEST_BYTES - 1, _REQUEST_BYTES + 1, 65536])
def test_who_talks_nonsense_is_let_go(root: Running, size: int) -> None:
    with process_of(WAIT) as process, root.bound(process.pid) as bound:
        bound.send(bytes(size))
        with pytest.raises(RootPartGone):
            ask(bound, Kind.OPEN, number=What.CWD)
        assert ask(root.connection, Kind.EXE, pid=process.pid).text


def test_no_descriptor_is_left_by_who_sends_too_many(root: Running) -> None:
    with process_of(WAIT) as process:
        before = root.descriptors
        for _ in range(20):
            with root.bound(process.pid) as bound:
                socket.send_fds(bound, [struct.pack("=I", Kind.OPEN).ljust(_REQUEST_BYTES)], [0, 0])
                with pytest.raises(RootPartGone):
                    ask(bound, Kind.OPEN, number=What.CWD)
        assert ask(root.connection, Kind.EXE, pid=process.pid).text
        assert root.descriptors == before


def test_sockets_are_bound_within_limits(root: Running) -> None:
    with process_of(WAIT) as process:
        before = root.descriptors
        with ExitStack() as kept:
            with pytest.raises(Refused, match="Too many open files"):
                for _ in range(5000):
                    kept.enter_context(root.bound(process.pid))
            assert ask(root.connection, Kind.EXE, pid=process.pid).text
        for _ in range(2000):
            with root.bound(process.pid):
                pass
        for pid in (0, -1, 1 << 30):
            assert errno_of(root.connection, Kind.BIND, pid=pid) in (errno.EINVAL, errno.ENOENT)
        for size in (1, 33 * 4, 1 << 63):
            about = {"pid": process.pid, "size": size}
            assert errno_of(root.connection, Kind.BIND, **about) == errno.EINVAL
        assert errno_of(root.connection, Kind.EXE, pid=2) == errno.ENOENT  # a kernel thread
        assert root.descriptors <= before + 2


def test_only_an_executable_of_roots_is_installed(root: Running, files: Path) -> None:
    reply = ask(root.connection, Kind.INSTALLED, text=b"/usr/bin/sleep")
    assert reply.file.handle
    assert reply.file.inode == os.fstat(reply.fd).st_ino == Path("/usr/bin/sleep").stat().st_ino
    os.close(reply.fd)
    refused = [
        written(files / "of_user", mode=0o755, user=USER),
        written(files / "writable", mode=0o775),
        written(files / "hidden", mode=0o711),
        written(files / "plain", mode=0o644),
        "/dev/zero",
        "/usr",
        "/proc/self/exe",
        "usr/bin/sleep",
    ]
    for path in refused:
        number = errno_of(root.connection, Kind.INSTALLED, text=path.encode())
        assert number in (errno.EACCES, errno.ELOOP, errno.EINVAL), path


def test_there_is_one_socket_for_the_tracer(root: Running) -> None:
    os.close(ask(root.connection, Kind.TRACER).fd)
    assert errno_of(root.connection, Kind.TRACER) == errno.EBUSY


def test_with_what_is_refused_comes_no_descriptor(root: Running, files: Path) -> None:
    """It was opened before it was checked."""
    path = written(files / "of_user", mode=0o755, user=USER)
    assert stat.S_ISREG(Path(path).stat().st_mode)
    head = struct.pack("=IiIIQQ", Kind.INSTALLED, 0, 0, 0, 0, 0)
    root.connection.send(head + path.encode().ljust(4096, b"\0"))
    content, fds, _, _ = socket.recv_fds(root.connection, 65536, 4)
    assert struct.unpack_from("=i", content) == (-errno.EACCES,)
    assert fds == []
