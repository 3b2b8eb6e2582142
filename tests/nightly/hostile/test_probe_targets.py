# SPDX-License-Identifier: Apache-2.0
"""A probe is placed in exactly the file that was examined, if the instruction is still there."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.root_part.protocol import Kind, Opened, ask
from servers.elf_places import offset_of
from servers.toy_elf import MYSQL_8, toy_server
from tracing.attaching import held, load, load_bytes, refused, uprobe
from tracing.root_part import RootPart, root_part

pytestmark = [pytest.mark.beside, pytest.mark.root]

PROGRAM = "mysql_begin_thd_first"
PUSH = b"\x55"  #: `push %rbp`, the first instruction of the toy's functions


@dataclass(frozen=True)
class Target:
    """A file with a function to probe, which the root part has opened."""

    root: RootPart
    tracer: socket.socket
    path: Path
    file: Opened
    offset: int

    def attach(self, code: bytes = PUSH, handle: int | None = None, further: int = 0) -> None:
        number = self.file.handle if handle is None else handle
        uprobe(self.tracer, PROGRAM, number, self.offset + further, code)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_server(tmp_path_factory.mktemp("toy") / "mysqld", [MYSQL_8], flags=("-O0",))


@pytest.fixture
def target(toy: Path, tmp_path: Path) -> Iterator[Target]:
    path = tmp_path / "server"
    shutil.copy(toy, path)
    path.chmod(0o755)
    with root_part() as root, root.tracer() as tracer:
        load(tracer, load_bytes(PROGRAM))
        yield Target(root, tracer, path, root.installed(path), offset_of(path, MYSQL_8))


def test_what_is_as_it_was_is_attached_to(target: Target) -> None:
    target.attach()
    assert held(target.root)["anon_inode:bpf_link"] == 1
    ask(target.tracer, Kind.DONE)
    assert held(target.root)["anon_inode:bpf_link"] == 1


def test_the_end_of_the_tracer_detaches(target: Target) -> None:
    target.attach()
    ask(target.tracer, Kind.DONE)
    target.tracer.close()
    with refused(errno.EPERM):  # answered once the other socket's end is seen
        ask(target.root.connection, Kind.EXE, pid=os.getpid())
    assert not held(target.root)


def replace(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy(path, other)
    other.rename(path)


def rewrite(path: Path) -> None:
    """Writes the same bytes, and sets the times back as far as an ordinary user can."""
    times = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def link(path: Path) -> None:
    path.with_name("another name").hardlink_to(path)


def give_away(path: Path) -> None:
    os.chown(path, 64001, 64001)


@pytest.mark.parametrize("change", [replace, rewrite, append, link, give_away, Path.unlink])
def test_a_file_that_has_changed_is_refused(target: Target, change: Callable[[Path], None]) -> None:
    change(target.path)
    with refused(errno.ESTALE):
        target.attach()
    assert not held(target.root)


@pytest.mark.parametrize(
    ("code", "number"),
    [
        (b"\x54", errno.ESTALE),
        (PUSH + b"\x00", errno.ESTALE),
        (b"", errno.EINVAL),
        (PUSH * 17, errno.EINVAL),
    ],
)
def test_another_instruction_is_refused(target: Target, code: bytes, number: int) -> None:
    with refused(number):
        target.attach(code)
    assert not held(target.root)


def test_places_and_handles_that_are_not_there(target: Target) -> None:
    size = target.path.stat().st_size
    with refused(errno.ESTALE):
        target.attach(further=size)


@pytest.mark.parametrize("handle", [0, 2, 257, 2**31 - 1, -1])
def test_a_handle_that_nobody_was_given(target: Target, handle: int) -> None:
    with refused(errno.ENOENT):
        target.attach(handle=handle)


def test_one_refusal_detaches_all(target: Target) -> None:
    target.attach()
    assert held(target.root)
    with refused(errno.ESTALE):
        target.attach(b"\x54")
    assert not held(target.root)
    with refused(errno.EINVAL):
        target.attach()


def test_what_is_mounted_over_it_is_not_looked_at(target: Target, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(target.path.stat().st_size))
    subprocess.run(["mount", "--bind", other, target.path], check=True)
    try:
        target.attach()
    finally:
        subprocess.run(["umount", target.path], check=True)
    assert held(target.root)["anon_inode:bpf_link"] == 1


def test_the_same_file_has_one_handle(target: Target) -> None:
    assert target.root.installed(target.path) == target.file
    link(target.path)
    again = target.root.installed(target.path)
    assert again.inode == target.file.inode
    assert again.handle != target.file.handle
    uprobe(target.tracer, PROGRAM, again.handle, target.offset, PUSH)


def test_programs_of_another_kind(target: Target) -> None:
    with refused(errno.EINVAL):
        uprobe(target.tracer, "on_switch", target.file.handle, target.offset, PUSH)


def test_a_program_that_is_not_loaded(target: Target) -> None:
    with refused(errno.EINVAL):
        uprobe(target.tracer, "postgres_portal_run", target.file.handle, target.offset, PUSH)


def test_more_probes_than_there_is_room(target: Target) -> None:
    for _ in range(320):  # MAX_LINKS
        target.attach()
    with refused(errno.ENOSPC):
        target.attach()
    assert not held(target.root)


@contextmanager
def sleeping(*words: str | Path, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """`sleep` under another name or none; it runs when the block begins."""
    with subprocess.Popen([*map(str, words), "1000"], **options) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def test_an_executable_in_memory_has_no_handle() -> None:
    fd = os.memfd_create("mysqld", 0)
    os.write(fd, Path(shutil.which("sleep") or "").read_bytes())
    os.set_inheritable(fd, True)
    with root_part() as root, sleeping(f"/proc/self/fd/{fd}", pass_fds=(fd,)) as process:
        file = root.executable(process.pid)
    os.close(fd)
    assert file.inode
    assert file.handle == 0


def test_an_executable_that_was_deleted_can_be_probed(tmp_path: Path) -> None:
    """Servers keep running when a new version is installed over them."""
    path = tmp_path / "mysqld"
    shutil.copy(shutil.which("sleep") or "", path)
    content = path.read_bytes()
    with sleeping(path) as process, root_part() as root, root.tracer() as tracer:
        path.unlink()
        file = root.executable(process.pid)
        load(tracer, load_bytes(PROGRAM))
        offset = len(content) // 2
        uprobe(tracer, PROGRAM, file.handle, offset, content[offset : offset + 4])
        assert held(root)["anon_inode:bpf_link"] == 1
