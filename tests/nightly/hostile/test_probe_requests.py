# SPDX-License-Identifier: Apache-2.0
"""Where the tracer, and later the reattach helper, may attach a probe: to the file that was
examined, if the instruction is still there. Whatever else they ask for is refused.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.root_part.protocol import Kind, Opened, Refused, What, ask
from servers.toy_elf import MYSQL_8, offset_of
from tracing.root_part import RootPart, bound_socket, root_part
from tracing.tracer import bpf_descriptors, load, load_bytes, refused, uprobe

pytestmark = pytest.mark.root

PROGRAM = "mysql_begin_thd_first"
PUSH = b"\x55"  #: `push %rbp`, the first instruction of the toy's functions
CODE_BYTES = 16
SLEEP = Path("/usr/bin/sleep")


@dataclass(frozen=True)
class Target:
    """A file with a function to probe, which the root part has opened."""

    root: RootPart
    tracer: socket.socket
    path: Path
    file: Opened
    offset: int

    def attach(
        self,
        code: bytes = PUSH,
        handle: int | None = None,
        further: int = 0,
        program: str = PROGRAM,
    ) -> None:
        number = self.file.handle if handle is None else handle
        uprobe(self.tracer, program, number, self.offset + further, code)

    @property
    def links(self) -> int:
        return bpf_descriptors(self.root)["anon_inode:bpf_link"]


@pytest.fixture
def target(toy: Path, tmp_path: Path) -> Iterator[Target]:
    path = tmp_path / "server"
    shutil.copy(toy, path)
    path.chmod(0o755)
    with root_part() as root, root.tracer() as tracer:
        load(tracer, load_bytes(PROGRAM, "on_exec"))
        yield Target(root, tracer, path, root.installed(path), offset_of(path, MYSQL_8))


def replace(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy(path, other)
    other.rename(path)


def rewrite(path: Path) -> None:
    """Writes the same bytes, and sets the times back as far as an ordinary user can."""
    times = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def link(path: Path) -> None:
    path.with_name("another name").hardlink_to(path)


def give_away(path: Path) -> None:
    os.chown(path, 54001, 54001)


@pytest.mark.parametrize("change", [replace, rewrite, link, give_away, Path.unlink])
def test_a_file_that_has_changed_is_refused(target: Target, change: Callable[[Path], None]) -> None:
    target.attach()
    change(target.path)
    with refused(errno.ESTALE):
        target.attach()
    assert not bpf_descriptors(target.root), "one refusal detaches all"
    with refused(errno.EINVAL):
        target.attach()


@pytest.mark.parametrize(
    ("request_", "number"),
    [
        ({"code": b"\x54"}, errno.ESTALE),
        ({"code": b""}, errno.EINVAL),
        ({"code": PUSH * 17}, errno.EINVAL),
        ({"further": 1 << 30}, errno.ESTALE),
        ({"handle": 0}, errno.ENOENT),
        ({"handle": 2}, errno.ENOENT),
        ({"handle": -1}, errno.ENOENT),
        ({"program": "postgres_portal_run"}, errno.EINVAL),  # not loaded
    ],
)
def test_another_instruction_file_or_program_is_refused(
    target: Target, request_: dict[str, object], number: int
) -> None:
    with refused(number):
        target.attach(**request_)  # type: ignore[arg-type]
    assert not bpf_descriptors(target.root)


def test_what_is_mounted_over_the_file_is_ignored(target: Target, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(target.path.stat().st_size))
    subprocess.run(["mount", "--bind", other, target.path], check=True)
    try:
        target.attach()
    finally:
        subprocess.run(["umount", target.path], check=True)
    assert target.links == 1


def test_an_executable_in_memory_has_no_handle() -> None:
    fd = os.memfd_create("mysqld", 0)
    os.write(fd, SLEEP.read_bytes())
    with root_part() as root:
        process = subprocess.Popen([f"/proc/self/fd/{fd}", "1000"], pass_fds=(fd,))
        file = root.executable(process.pid)
        process.kill()
        process.wait()
    os.close(fd)
    assert file.inode
    assert file.handle == 0


def test_an_executable_that_was_deleted_can_be_probed(tmp_path: Path) -> None:
    """Servers keep running when a new version is installed over them."""
    path = tmp_path / "mysqld"
    shutil.copy(SLEEP, path)
    content = path.read_bytes()
    with root_part() as root, root.tracer() as tracer:
        process = subprocess.Popen([path, "1000"])
        path.unlink()
        file = root.executable(process.pid)
        process.kill()
        process.wait()
        load(tracer, load_bytes(PROGRAM))
        offset = len(content) // 2
        uprobe(tracer, PROGRAM, file.handle, offset, content[offset : offset + 4])
        assert bpf_descriptors(root)["anon_inode:bpf_link"] == 1


# ---- the reattach helper -------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """A tracer that is attached to a file, and the reattach helper's socket."""

    target: Target
    keeper: socket.socket

    def attach(self, program: bytes = PROGRAM.encode(), code: bytes = PUSH) -> None:
        ask(
            self.keeper,
            Kind.ATTACH,
            pid=self.target.file.handle,
            offset=self.target.offset,
            size=len(code),
            text=code.ljust(CODE_BYTES, b"\0") + program,
        )


@pytest.fixture
def reattaching(target: Target) -> Iterator[Kept]:
    with socket.socket(fileno=ask(target.root.connection, Kind.KEEPER).fd) as keeper:
        for kind in Kind:  # before the tracer is attached
            with refused(errno.EPERM):
                ask(keeper, kind, pid=os.getpid())
        with refused(errno.EBUSY):
            ask(target.root.connection, Kind.KEEPER)
        target.attach()
        ask(target.tracer, Kind.DONE)
        yield Kept(target, keeper)


def test_once_attached_only_the_keeper_may_ask_and_only_to_follow(reattaching: Kept) -> None:
    following = {Kind.EXE, Kind.BIND, Kind.MAP, Kind.ATTACH, Kind.DONE}
    for kind in (Kind.KEEPER, *following):
        with refused(errno.EPERM):
            ask(reattaching.target.root.connection, kind, pid=os.getpid())
    for kind in following - {Kind.EXE}:
        with refused(errno.EPERM):
            ask(reattaching.target.tracer, kind)
    for kind in set(Kind) - following:
        with refused(errno.EPERM):
            ask(reattaching.keeper, kind, pid=os.getpid())
    assert reattaching.target.links == 1


def test_the_keeper_attaches_only_what_was_loaded_to_what_was_opened(reattaching: Kept) -> None:
    reattaching.attach()
    assert reattaching.target.links == 2
    for program in (b"", b"mysql_end", b"on_exec", b"x" * 4000):
        with refused(errno.EINVAL):
            reattaching.attach(program)
    assert reattaching.target.links == 1, "a refusal takes its probes away, not the tracer's"
    with refused(errno.ESTALE):
        reattaching.attach(code=b"\x90")


def test_the_keeper_looks_at_one_process_a_second_and_its_files_alone(reattaching: Kept) -> None:
    looks, end = 0, time.monotonic() + 2.5
    while time.monotonic() < end:
        try:
            with bound_socket(reattaching.keeper, os.getpid()) as bound:
                looks += 1
                os.close(ask(bound, Kind.OPEN, number=What.PROC, text=b"cmdline").fd)
                for kind in set(Kind) - {Kind.OPEN}:
                    with refused(errno.EPERM):
                        ask(bound, kind)
        except Refused as error:
            assert error.errno == errno.EAGAIN, error
    assert 2 <= looks <= 4


def test_the_keeper_gets_the_servers_and_no_other_map(reattaching: Kept) -> None:
    maps = set()
    for number in (0, 1, 2**32 - 1):
        fd = ask(reattaching.keeper, Kind.MAP, number=number).fd
        maps.add(Path(f"/proc/self/fdinfo/{fd}").read_text())
        os.close(fd)
    assert len(maps) == 1


def test_the_end_of_the_tracer_ends_the_keeper(reattaching: Kept) -> None:
    reattaching.target.tracer.close()
    deadline = time.monotonic() + 10
    while bpf_descriptors(reattaching.target.root):
        assert time.monotonic() < deadline
    with refused(errno.EINVAL):
        reattaching.attach()
    assert not bpf_descriptors(reattaching.target.root)
