# SPDX-License-Identifier: Apache-2.0
"""What the socket that is bound to one process grants, and how much of it. Also: what the root
part refuses the tracer.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nightly.hostile.bound import OTHER_USER, USER, WAIT, candidate, mapping_of, process_of, written
from qjoule.root_part.client import installed
from qjoule.root_part.protocol import MAX_KEPT, Kind, Refused, RootPartGone, What, ask
from qjoule.servers.access import Unreadable, opened
from tracing.root_part import RootPart
from tracing.tracer import bpf_descriptors, load, load_bytes, refused

pytestmark = [pytest.mark.beside, pytest.mark.root]

_REQUEST_BYTES = 32 + 4096


def errno_of(connection: socket.socket, kind: Kind, **fields: object) -> int:
    with pytest.raises(Refused) as refused:
        ask(connection, kind, **fields)  # type: ignore[arg-type]
    return refused.value.errno


def test_an_answer_leaves_no_descriptor_and_no_process(root: RootPart, place: Path) -> None:
    path = written(place / "file")
    with candidate(root) as access:
        access.executable().close()
        descriptors, children = root.descriptors, root.children
        for _ in range(100):
            access.executable().close()
            assert access.file(path)
            assert access.names(str(place))
            with pytest.raises(Unreadable):
                access.file("/dev/zero")
            with pytest.raises(Unreadable):
                access.mapped(1, 2)
        assert root.descriptors == descriptors
        # The answer comes before the end of a child, which is waited for afterwards.
        while root.children != children:
            assert access.file_id(path)


def test_a_process_gets_a_limited_number_of_handles(root: RootPart, place: Path) -> None:
    program = (
        "import mmap, os, sys; paths = sys.argv[1:];"
        "maps = [mmap.mmap(os.open(p, 0), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ) for p in paths];"
        f"{WAIT}"
    )
    paths = [written(place / f"library{n}", bytes([n]) * 4096, 0o755) for n in range(20)]
    with candidate(root, program, *paths) as access:
        handles = []
        for path in paths:
            with opened(mapping_of(access, path)) as library:
                handles.append(library.handle)
                assert os.pread(library.fd, 4096, 0)
    assert all(handles[:MAX_KEPT])
    assert len(set(handles[:MAX_KEPT])) == MAX_KEPT
    assert not any(handles[MAX_KEPT:])


@pytest.fixture
def bound(root: RootPart) -> Iterator[socket.socket]:
    with process_of(WAIT) as process, root.bound(process.pid) as connection:
        yield connection


def test_only_known_files_of_proc_are_opened(bound: socket.socket) -> None:
    for name in ("", "mem", "fd/0", "exe", "root/etc/passwd", "../1/environ", "net/../environ"):
        fields = {"number": What.PROC, "text": name.encode()}
        assert errno_of(bound, Kind.OPEN, **fields) == errno.EACCES
    assert errno_of(bound, Kind.OPEN, number=99) == errno.EINVAL


def test_one_process_is_all_that_its_socket_reaches(bound: socket.socket) -> None:
    for kind in set(Kind) - {Kind.OPEN}:
        assert errno_of(bound, kind, pid=1, text=b"/usr/bin/sleep") == errno.EPERM
    # The process in the request is ignored.
    reply = ask(bound, Kind.OPEN, pid=1, number=What.PROC, text=b"cmdline")
    assert WAIT.encode() in os.read(reply.fd, 1000)
    os.close(reply.fd)


def test_a_malformed_request_ends_the_socket_and_leaves_no_descriptor(root: RootPart) -> None:
    sizes = (1, _REQUEST_BYTES - 1, _REQUEST_BYTES + 1, 65536)
    too_many_descriptors = [struct.pack("=I", Kind.OPEN).ljust(_REQUEST_BYTES)], [0, 0]
    with process_of(WAIT) as process:
        before = root.descriptors
        for size in (*sizes, *[None] * 20):
            with root.bound(process.pid) as bound:
                if size is None:
                    socket.send_fds(bound, *too_many_descriptors)
                else:
                    bound.send(bytes(size))
                with pytest.raises(RootPartGone):
                    ask(bound, Kind.OPEN, number=What.SOCKETS)
        assert ask(root.connection, Kind.EXE, pid=process.pid).text
        assert root.descriptors == before


def test_sockets_are_bound_within_limits(root: RootPart) -> None:
    with process_of(WAIT) as process:
        before = root.descriptors
        with ExitStack() as bound_sockets:
            with pytest.raises(Refused, match="Too many open files"):
                for _ in range(5000):
                    bound_sockets.enter_context(root.bound(process.pid))
            assert ask(root.connection, Kind.EXE, pid=process.pid).text
        for pid in (0, -1, 1 << 30):
            assert errno_of(root.connection, Kind.BIND, pid=pid) in (errno.EINVAL, errno.ENOENT)
        assert errno_of(root.connection, Kind.EXE, pid=2) == errno.ENOENT  # a kernel thread
        assert root.descriptors <= before + 2


def test_only_an_executable_of_roots_is_installed(root: RootPart, place: Path) -> None:
    reply = installed(root.connection, Path("/usr/bin/sleep"))
    assert reply.file.handle
    assert reply.file.inode == os.fstat(reply.fd).st_ino == Path("/usr/bin/sleep").stat().st_ino
    os.close(reply.fd)
    (place / "empty").touch()
    before = root.descriptors
    for path, number in (
        (written(place / "of_user", mode=0o755, user=USER), errno.EACCES),
        (written(place / "writable", mode=0o757), errno.EACCES),
        ("/dev/zero", errno.EACCES),
        ("/usr", errno.ENODEV),
        (place / "empty", errno.EINVAL),
        (place / "none", errno.ENOENT),
    ):
        with pytest.raises(Refused) as raised:
            installed(root.connection, Path(path))
        assert raised.value.errno == number, path
    assert root.descriptors == before


def test_a_refusal_carries_no_descriptor(root: RootPart, place: Path) -> None:
    """The root part opens a file before it checks it."""
    path = Path(written(place / "of_user", mode=0o755, user=OTHER_USER))
    program = f"import mmap, os; m = mmap.mmap(os.open({str(path)!r}, 0), 1, prot=1); {WAIT}"
    with process_of(program) as process, root.bound(process.pid) as bound:
        maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        (area,) = (line.split()[0] for line in maps if line.endswith(str(path)))
        start, end = (int(number, 16) for number in area.split("-"))
        fields = (Kind.OPEN, 0, What.MAPPED, 0, start, end - start)
        bound.send(struct.pack("=IiIIQQ", *fields).ljust(_REQUEST_BYTES, b"\0"))
        content, fds, _, _ = socket.recv_fds(bound, 65536, 4)
    assert struct.unpack_from("=i", content) == (-errno.EACCES,)
    assert fds == []


# ---- what the root part refuses the tracer: no request can exceed the limits ---------------------

PROGRAM = "mysql_begin_thd_first"
PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, PERF_TYPE_BREAKPOINT = 1, 2, 5
TREE = Path(__file__).parents[3]
MAPS_OF_TRACER = (TREE / "tracer/variant.h").read_text().count("(s)->maps.")  #: TRACER_MAPS
SOFTWARE = {"number": PERF_TYPE_SOFTWARE}


@pytest.fixture
def tracer(root: RootPart) -> Iterator[socket.socket]:
    with root.tracer() as tracer:
        yield tracer


@pytest.fixture
def loaded(tracer: socket.socket) -> socket.socket:
    load(tracer, load_bytes(PROGRAM))
    return tracer


@pytest.mark.parametrize(
    ("content", "number"),
    [
        (load_bytes(PROGRAM, version=0), errno.EPROTO),
        (load_bytes(PROGRAM, counts=(0, 1)), errno.EPROTO),
        (load_bytes(PROGRAM, entries=1 << 17), errno.E2BIG),
        (load_bytes(PROGRAM, size=-1), errno.EINVAL),
        (b"", errno.EINVAL),
    ],
)
def test_a_malformed_or_too_large_load_is_refused(
    root: RootPart, tracer: socket.socket, content: bytes, number: int
) -> None:
    with refused(number):
        load(tracer, content)
    assert not bpf_descriptors(root)


def test_only_a_file_in_memory_is_loaded(tracer: socket.socket, tmp_path: Path) -> None:
    """Reading any other file could block on somebody else."""
    path = tmp_path / "load"
    path.write_bytes(load_bytes(PROGRAM))
    descriptors = [*os.pipe(), os.open(path, os.O_RDONLY)]
    for fd in descriptors:
        with refused(errno.EINVAL):
            ask(tracer, Kind.LOAD, fd=fd)
        os.close(fd)
    with refused(errno.EINVAL):
        ask(tracer, Kind.LOAD)
    for kind in (Kind.MAP, Kind.RING, Kind.ATTACH):
        with refused(errno.EINVAL):
            ask(tracer, kind)  # nothing is loaded


def test_only_maps_that_the_tracer_works_with_are_given(loaded: socket.socket) -> None:
    for number in range(MAPS_OF_TRACER):
        os.close(ask(loaded, Kind.MAP, number=number).fd)
    with refused(errno.EINVAL):
        ask(loaded, Kind.MAP, number=MAPS_OF_TRACER)


@pytest.mark.parametrize(
    ("kind", "request_", "number"),
    [
        (Kind.MAP, {"number": 2**32 - 1}, errno.EINVAL),
        (Kind.RING, {"number": 8, "size": 4096}, errno.E2BIG),  # QJ_MAX_RINGS
        (Kind.RING, {"size": 0}, errno.EINVAL),
        (Kind.RING, {"size": (1 << 30) + 1}, errno.E2BIG),
        (Kind.ATTACH, {"text": bytes(16) + PROGRAM.encode()}, errno.ENOENT),  # no handle
        (Kind.ATTACH, {"text": bytes(16) + b"postgres_recv"}, errno.EINVAL),  # not loaded
        (Kind.ATTACH, {"text": b"x" * 4095}, errno.EINVAL),
        (Kind.COUNTER, {**SOFTWARE, "pid": -1}, errno.EINVAL),
        (Kind.COUNTER, {**SOFTWARE, "flags": 16}, errno.EINVAL),
        (Kind.COUNTER, {"number": PERF_TYPE_TRACEPOINT, "size": 1}, errno.EINVAL),
        (Kind.COUNTER, {"number": PERF_TYPE_BREAKPOINT}, errno.EINVAL),
    ],
)
def test_what_is_not_there_or_beyond_a_limit_is_refused(
    root: RootPart, loaded: socket.socket, kind: Kind, request_: dict[str, Any], number: int
) -> None:
    with refused(number):
        ask(loaded, kind, **request_)
    assert kind is Kind.COUNTER or not bpf_descriptors(root)


def test_many_small_rings_get_no_more_memory_than_a_large_one(loaded: socket.socket) -> None:
    size = 1 << 26
    for _ in range((1 << 30) // size):
        os.close(ask(loaded, Kind.RING, number=0, size=size).fd)
    with refused(errno.E2BIG):
        ask(loaded, Kind.RING, number=0, size=4096)


def test_a_counter_of_a_cpu_is_given(tracer: socket.socket) -> None:
    for flags, size in ((0, 8), (3, 24), (4, 8), (8 | 3, 24)):
        reply = ask(tracer, Kind.COUNTER, number=PERF_TYPE_SOFTWARE, flags=flags)
        assert len(os.read(reply.fd, 100)) == size
        os.close(reply.fd)


def test_energy_is_read_below_sys_alone_and_through_no_link(
    tracer: socket.socket, tmp_path: Path
) -> None:
    """Some files of sysfs have an effect when they are opened, so a link must not lead to them."""
    secret, link = tmp_path / "energy_uj", tmp_path / "link" / "energy_uj"
    secret.write_text("secret")
    link.parent.mkdir()
    link.symlink_to("/sys/kernel/notes")
    for path in (str(secret), "/sys/kernel/notes", "energy_uj", "", "/sys/"):
        with refused(errno.EACCES):
            ask(tracer, Kind.ENERGY_FILE, text=path.encode())
    for path in (f"/sys/..{secret}", f"/sys/..{link}"):
        with refused(errno.EXDEV):
            ask(tracer, Kind.ENERGY_FILE, text=path.encode())
    with refused(errno.ENOENT):
        ask(tracer, Kind.ENERGY_FILE, text=b"/sys/no/energy_uj")


def test_nothing_is_granted_after_the_tracer_is_done(root: RootPart, loaded: socket.socket) -> None:
    with refused(errno.EBUSY):
        root.tracer()
    ask(loaded, Kind.DONE)
    for kind in Kind:
        with refused(errno.EPERM):
            ask(loaded, kind)
    assert bpf_descriptors(root)["anon_inode:bpf-prog"] == 1


def test_tracer_and_command_cannot_make_each_others_requests(
    root: RootPart, tracer: socket.socket
) -> None:
    for kind in Kind:
        with refused(errno.EPERM):
            ask(root.connection if kind >= Kind.COUNTER else tracer, kind)
