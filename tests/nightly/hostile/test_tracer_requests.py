# SPDX-License-Identifier: Apache-2.0
"""What the root part refuses the tracer: no request can exceed the limits."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qjoule.root_part.protocol import Kind, ask
from tracing.attaching import held, load, load_bytes, refused
from tracing.root_part import RootPart

pytestmark = [pytest.mark.beside, pytest.mark.root]

PROGRAM = "mysql_begin_thd_first"
PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, PERF_TYPE_BREAKPOINT = 1, 2, 5
MAPS_OF_TRACER = 10  #: TRACER_MAPS of tracer/variant.h
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
    assert not held(root)


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
    assert kind is Kind.COUNTER or not held(root)


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
    assert held(root)["anon_inode:bpf-prog"] == 1


def test_tracer_and_command_cannot_make_each_others_requests(
    root: RootPart, tracer: socket.socket
) -> None:
    for kind in Kind:
        with refused(errno.EPERM):
            ask(root.connection if kind >= Kind.COUNTER else tracer, kind)
