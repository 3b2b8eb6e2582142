# SPDX-License-Identifier: Apache-2.0
"""What the root part refuses the keeper, who asks for as long as the tracer runs."""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.root_part.protocol import Kind, What, ask
from qjoule.servers.plan import _server_plan
from servers.elf_places import offset_of
from servers.toy_elf import MYSQL_8, toy_server
from tracing.attaching import held, load, load_bytes, refused, uprobe
from tracing.root_part import RootPart, root_part

pytestmark = pytest.mark.root

PROGRAM, OTHER = "mysql_begin_thd_first", "mysql_end"
PUSH = b"\x55"  #: `push %rbp`, the first instruction of the toy's functions
CODE_BYTES = 16


@dataclass(frozen=True)
class Kept:
    """A tracer that is attached to a file, and the keeper's socket."""

    root: RootPart
    tracer: socket.socket
    keeper: socket.socket
    handle: int
    offset: int

    def attach(self, program: bytes = PROGRAM.encode(), code: bytes = PUSH) -> None:
        text = code.ljust(CODE_BYTES, b"\0") + program
        where, size = self.offset, len(code)
        ask(self.keeper, Kind.UPROBE, pid=self.handle, offset=where, size=size, text=text)

    def bind(self) -> socket.socket:
        groups = struct.pack("=I", os.getgid())
        reply = ask(
            self.keeper,
            Kind.BIND,
            pid=os.getpid(),
            number=os.getuid(),
            flags=os.getgid(),
            size=len(groups),
            text=groups,
        )
        return socket.socket(fileno=reply.fd)


def keeper_of(root: RootPart) -> socket.socket:
    return socket.socket(fileno=ask(root.connection, Kind.KEEPER).fd)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    path = toy_server(tmp_path / "mysqld", [MYSQL_8], flags=("-O0",))
    path.chmod(0o755)
    with root_part() as root, root.tracer() as tracer, keeper_of(root) as keeper:
        load(tracer, load_bytes(PROGRAM))
        handle, offset = root.installed(path).handle, offset_of(path, MYSQL_8)
        uprobe(tracer, PROGRAM, handle, offset, PUSH)
        ask(tracer, Kind.DONE)
        yield Kept(root, tracer, keeper, handle, offset)


def test_it_asks_nothing_before_the_tracer_is_attached() -> None:
    with root_part() as root, keeper_of(root) as keeper:
        for kind in Kind:
            with refused(errno.EPERM):
                ask(keeper, kind, pid=os.getpid())


def test_there_is_one_keeper() -> None:
    with root_part() as root:
        os.close(ask(root.connection, Kind.KEEPER).fd)
        with refused(errno.EBUSY):
            ask(root.connection, Kind.KEEPER)


def test_the_command_cannot_get_one_later(kept: Kept) -> None:
    for kind in (Kind.KEEPER, Kind.EXE, Kind.BIND, Kind.UPROBE, Kind.FOLLOW):
        with refused(errno.EPERM):
            ask(kept.root.connection, kind, pid=os.getpid())


def test_it_loads_runs_and_creates_nothing(kept: Kept) -> None:
    for kind in set(Kind) - {Kind.EXE, Kind.BIND, Kind.UPROBE, Kind.FOLLOW}:
        with refused(errno.EPERM):
            ask(kept.keeper, kind, pid=os.getpid())
    assert held(kept.root)["anon_inode:bpf_link"] == 1


def test_the_tracer_stays_refused(kept: Kept) -> None:
    for kind in (Kind.UPROBE, Kind.ATTACH, Kind.FOLLOW, Kind.BIND):
        with refused(errno.EPERM):
            ask(kept.tracer, kind)


def test_it_attaches_only_what_was_loaded_to_what_was_opened(kept: Kept) -> None:
    kept.attach()
    assert held(kept.root)["anon_inode:bpf_link"] == 2
    for program in (b"", OTHER.encode(), b"on_exec", b"on_alive", b"x" * 4000):
        with refused(errno.EINVAL):
            kept.attach(program)
    with refused(errno.ESTALE):
        kept.attach(code=b"\x90")


def test_what_fails_takes_only_its_own_probes_away(kept: Kept) -> None:
    kept.attach()
    with refused(errno.EINVAL):
        kept.attach(b"no such program")
    assert held(kept.root)["anon_inode:bpf_link"] == 1  # the tracer's


def test_it_looks_at_one_process_a_second(kept: Kept) -> None:
    looks = 0
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        try:
            kept.bind().close()
            looks += 1
        except Exception as error:
            assert getattr(error, "errno", 0) == errno.EAGAIN, error
    assert 2 <= looks <= 4


def test_what_it_binds_opens_files_of_one_process(kept: Kept) -> None:
    with kept.bind() as bound:
        os.close(ask(bound, Kind.OPEN, number=What.PROC, text=b"cmdline").fd)
        for kind in set(Kind) - {Kind.OPEN}:
            with refused(errno.EPERM):
                ask(bound, kind)


@pytest.mark.parametrize("number", [16, 2**32 - 1])
def test_an_entry_that_is_not_in_the_plan(kept: Kept, number: int) -> None:
    with refused(errno.EINVAL):
        ask(kept.keeper, Kind.FOLLOW, pid=os.getpid(), number=number)


def test_a_server_whose_programs_were_not_loaded(kept: Kept) -> None:
    """The plan of these tests has no server, so nothing can be followed, whatever it claims."""
    exe = Path("/proc/self/exe").stat()
    device = os.major(exe.st_dev) << 20 | os.minor(exe.st_dev)
    layout = _server_plan()
    facts = [0] * ((layout.size - 24) // 8)
    for kind in (0, 1, 31, 32, 255):
        text = layout.pack(exe.st_ino, 0, device, kind, 1, 0, 0, *facts)
        with refused(errno.ESTALE):
            ask(kept.keeper, Kind.FOLLOW, pid=os.getpid(), number=0, text=text)


def test_a_process_that_has_ended(kept: Kept) -> None:
    with refused(errno.ENOENT):
        ask(kept.keeper, Kind.FOLLOW, pid=2**22, number=0)


def test_the_end_of_the_tracer_ends_it(kept: Kept) -> None:
    kept.tracer.close()
    deadline = time.monotonic() + 10
    while held(kept.root):
        assert time.monotonic() < deadline
    with refused(errno.EINVAL):
        kept.attach()
    assert not held(kept.root)
