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

from qjoule.root_part.protocol import Kind, Refused, ask
from tracing.attaching import held, load, load_bytes, maps, programs, refused
from tracing.root_part import RootPart, root_part

pytestmark = [pytest.mark.beside, pytest.mark.root]

PROGRAM = "mysql_begin_thd_first"
PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, PERF_TYPE_BREAKPOINT = 1, 2, 5
GIVEN = {"batches", "cycles", "instructions", "llc_misses", "more_counters"}
GIVEN |= {"sums_even", "sums_odd", "idles"}


@pytest.fixture
def root() -> Iterator[RootPart]:
    with root_part() as root:
        yield root


@pytest.fixture
def tracer(root: RootPart) -> Iterator[socket.socket]:
    with root.tracer() as tracer:
        yield tracer


@pytest.fixture
def loaded(tracer: socket.socket) -> socket.socket:
    load(tracer, load_bytes(PROGRAM))
    return tracer


# ---- loading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "number"),
    [
        (load_bytes(PROGRAM, version=0), errno.EPROTO),
        (load_bytes(PROGRAM, counts=(1, 0)), errno.EPROTO),
        (load_bytes(PROGRAM, counts=(-1, 0)), errno.EPROTO),
        (load_bytes(PROGRAM, counts=(0, 1)), errno.EPROTO),
        (load_bytes(PROGRAM, counts=(1000, 1000)), errno.EPROTO),
        (load_bytes(PROGRAM, entries=1 << 17), errno.E2BIG),
        (load_bytes(PROGRAM, entries=2**32 - 1), errno.E2BIG),
        (load_bytes(PROGRAM, size=-1), errno.EINVAL),
        (b"", errno.EINVAL),
    ],
)
def test_what_cannot_be_loaded(
    root: RootPart, tracer: socket.socket, content: bytes, number: int
) -> None:
    with refused(number):
        load(tracer, content)
    assert not held(root)


def test_only_a_file_in_memory_is_read(tracer: socket.socket, tmp_path: Path) -> None:
    """Reading any other file could block on somebody else."""
    path = tmp_path / "load"
    path.write_bytes(load_bytes(PROGRAM))
    read_end, write_end = os.pipe()
    file = os.open(path, os.O_RDONLY)
    for fd in (read_end, write_end, file):
        with refused(errno.EINVAL):
            ask(tracer, Kind.LOAD, fd=fd)
        os.close(fd)
    with refused(errno.EINVAL):
        ask(tracer, Kind.LOAD)


def test_loading_twice(root: RootPart, loaded: socket.socket) -> None:
    with refused(errno.EBUSY):
        load(loaded, load_bytes(PROGRAM))
    assert not held(root)


def test_nothing_of_it_before_loading(tracer: socket.socket) -> None:
    for kind in (Kind.MAP, Kind.RING, Kind.ATTACH, Kind.UPROBE, Kind.ITERATOR):
        with refused(errno.EINVAL):
            ask(tracer, kind)


# ---- maps, rings, programs -----------------------------------------------------------------------


def test_only_maps_that_the_tracer_works_with(loaded: socket.socket) -> None:
    given = set()
    for name, number in maps().items():
        try:
            os.close(ask(loaded, Kind.MAP, number=number).fd)
        except Refused as error:
            assert error.errno == errno.EACCES
            load(loaded, load_bytes(PROGRAM))
        else:
            given.add(name)
    assert given > GIVEN
    assert {name.rpartition(".")[2] for name in given - GIVEN} == {"bss"}


@pytest.mark.parametrize("number", [len(maps()), 2**32 - 1])
def test_a_map_that_is_not_there(loaded: socket.socket, number: int) -> None:
    with refused(errno.EINVAL):
        ask(loaded, Kind.MAP, number=number)


@pytest.mark.parametrize(
    ("number", "size", "why"),
    [
        (8, 4096, errno.E2BIG),  # QJ_MAX_RINGS
        (0, 4095, errno.EINVAL),
        (0, 0, errno.EINVAL),
        (0, 3 * 4096, errno.EINVAL),
        (0, (1 << 30) + 1, errno.E2BIG),
        (0, 1 << 32, errno.E2BIG),
        (0, 2**64 - 4096, errno.E2BIG),
    ],
)
def test_rings(loaded: socket.socket, number: int, size: int, why: int) -> None:
    os.close(ask(loaded, Kind.RING, number=0, size=4096).fd)
    with refused(why):
        ask(loaded, Kind.RING, number=number, size=size)


def test_rings_altogether(loaded: socket.socket) -> None:
    """Many small rings get no more memory than a large one."""
    size = 1 << 26
    for _ in range((1 << 30) // size):
        os.close(ask(loaded, Kind.RING, number=0, size=size).fd)
    with refused(errno.E2BIG):
        ask(loaded, Kind.RING, number=0, size=4096)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Kind.ATTACH, PROGRAM),
        (Kind.ATTACH, "on_alive"),
        (Kind.ATTACH, "postgres_recv"),  # of the right kind, but not loaded
        (Kind.ITERATOR, PROGRAM),
        (Kind.ITERATOR, "on_switch"),
    ],
)
def test_programs_of_another_kind(
    root: RootPart, loaded: socket.socket, kind: Kind, name: str
) -> None:
    with refused(errno.EINVAL):
        ask(loaded, kind, number=programs()[name])
    assert not held(root)


@pytest.mark.parametrize("number", [len(programs()), 2**32 - 1])
@pytest.mark.parametrize("kind", [Kind.ATTACH, Kind.UPROBE, Kind.ITERATOR])
def test_a_program_that_is_not_there(loaded: socket.socket, kind: Kind, number: int) -> None:
    with refused(errno.EINVAL):
        ask(loaded, kind, number=number)


# ---- counters and energy -------------------------------------------------------------------------


def test_a_counter_of_a_cpu(tracer: socket.socket) -> None:
    for flags, size in ((0, 8), (3, 24), (4, 8), (8 | 3, 24)):
        reply = ask(tracer, Kind.COUNTER, number=PERF_TYPE_SOFTWARE, flags=flags)
        assert len(os.read(reply.fd, 100)) == size
        os.close(reply.fd)


@pytest.mark.parametrize(
    "question",
    [
        {"pid": -1},
        {"pid": -(2**31)},
        {"number": PERF_TYPE_TRACEPOINT, "size": 1},
        {"number": PERF_TYPE_BREAKPOINT},
        {"flags": 16},
        {"flags": 2**32 - 1},
        {"pid": 1 << 20},
    ],
)
def test_other_events(tracer: socket.socket, question: dict[str, int]) -> None:
    asking: dict[str, Any] = {"number": PERF_TYPE_SOFTWARE, **question}
    with refused(errno.EINVAL):
        ask(tracer, Kind.COUNTER, **asking)


def test_energy_is_read_below_sys_alone(tracer: socket.socket, tmp_path: Path) -> None:
    secret = tmp_path / "energy_uj"
    secret.write_text("secret")
    for path in (str(secret), "/sys/kernel/notes", "energy_uj", "", "/sys/"):
        with refused(errno.EACCES):
            ask(tracer, Kind.ENERGY_FILE, text=path.encode())
    with refused(errno.EXDEV):
        ask(tracer, Kind.ENERGY_FILE, text=f"/sys/..{secret}".encode())
    with refused(errno.ENOENT):
        ask(tracer, Kind.ENERGY_FILE, text=b"/sys/no/energy_uj")


def test_a_link_is_no_energy_file(tracer: socket.socket, tmp_path: Path) -> None:
    """A sysfs file with another name: some files there have an effect when opened."""
    link = tmp_path / "energy_uj"
    link.symlink_to("/sys/kernel/notes")
    with refused(errno.EXDEV):
        ask(tracer, Kind.ENERGY_FILE, text=f"/sys/..{link}".encode())


# ---- who may ask what ----------------------------------------------------------------------------


def test_nothing_after_it_is_done(root: RootPart, loaded: socket.socket) -> None:
    ask(loaded, Kind.DONE)
    for kind in Kind:
        with refused(errno.EPERM):
            ask(loaded, kind)
    held_then = held(root)
    assert held_then["anon_inode:bpf-prog"] == 1


def test_what_only_others_may_ask(root: RootPart, tracer: socket.socket) -> None:
    tracers = {kind for kind in Kind if kind >= Kind.COUNTER}
    for kind in set(Kind) - tracers:
        with refused(errno.EPERM):
            ask(tracer, kind)
    for kind in tracers:
        with refused(errno.EPERM):
            ask(root.connection, kind)


def test_there_is_one_tracer(root: RootPart, tracer: socket.socket) -> None:
    assert tracer.fileno() >= 0
    with refused(errno.EBUSY):
        root.tracer()
