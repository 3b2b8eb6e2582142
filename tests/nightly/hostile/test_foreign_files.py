# SPDX-License-Identifier: Apache-2.0
"""Which files of another user's process the root part opens, and which it refuses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nightly.hostile.bound import (
    OTHER_USER,
    USER,
    WAIT,
    candidate,
    mapping_of,
    process_of,
    silent_file_system,
    written,
)
from qjoule.root_part.access import SocketAccess
from qjoule.root_part.protocol import Kind, ask
from qjoule.servers.access import Opened, ProcFile, Unreadable, opened
from tracing.root_part import PYTHON, RootPart

pytestmark = [pytest.mark.beside, pytest.mark.root]


def make_directory(path: Path, mode: int = 0o755) -> None:
    path.mkdir()
    path.chmod(mode)


def is_file(file: Opened, path: str) -> bool:
    expected_status, status = Path(path).stat(), os.fstat(file.fd)
    same = (expected_status.st_dev, expected_status.st_ino)
    return file.identity.key == same and (status.st_dev, status.st_ino) == same


@pytest.fixture
def access(root: RootPart) -> Iterator[SocketAccess]:
    """The root part's access to the files of an ordinary process."""
    with candidate(root) as candidate_access:
        yield candidate_access


def test_executable_files_and_lists_are_those_of_the_process(root: RootPart, place: Path) -> None:
    program = (
        "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0));"
        f"open({str(place / 'socket:[1]')!r});"
        "import os; print(os.fstat(s.fileno()).st_ino, flush=True); __import__('sys').stdin.read()"
    )
    path = written(place / "server.conf")
    written(place / "socket:[1]")
    with process_of(program) as process, root.bound(process.pid) as bound:
        access = SocketAccess(bound)
        with opened(access.executable()) as executable, opened(access.executable()) as second:
            assert is_file(executable, PYTHON)
            assert executable.handle == second.handle > 0
            assert executable.path == str(Path(PYTHON).resolve())
        assert access.file(path) == b"port 1\n"
        assert access.file(path + "/none") is None
        assert access.file_id(path) == (Path(path).stat().st_dev, Path(path).stat().st_ino)
        assert access.names(str(place)) == ["server.conf", "socket:[1]"]
        assert access.names(str(place / "none")) == []
        assert access.sockets() == {Path(f"/proc/{process.pid}/fd/3").stat().st_ino}
        assert access.working_directory() == "/"
        assert access.network() == str(Path("/proc/self/ns/net").readlink())
        assert access.proc(ProcFile.CMDLINE).startswith(PYTHON.encode())
        assert b"00:00000000" in access.proc(ProcFile.TCP)


def test_memory_and_mapped_files_can_be_read(access: SocketAccess) -> None:
    lines = access.proc(ProcFile.MAPS).decode().splitlines()
    line = next(line for line in lines if "libc.so" in line)
    start, end = (int(word, 16) for word in line.split()[0].split("-"))
    with opened(access.mapped(start, end)) as mapped:
        assert is_file(mapped, line.split()[-1])
        assert mapped.handle
    memory = access.memory()
    assert os.pread(memory, 4, start) == b"\x7fELF"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(memory, b"x", start)
    os.close(memory)
    for wrong in ((start, end - 1), (0, 0), (end, start)):
        with pytest.raises(Unreadable):
            access.mapped(*wrong)


def test_a_mapped_file_that_others_may_change_is_not_given(root: RootPart, place: Path) -> None:
    program = (
        "import mmap, os, sys; f = os.open(sys.argv[1], 0);"
        f"m = mmap.mmap(f, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ); {WAIT}"
    )
    content = b"x" * 4096
    own_file = written(place / "own", content, 0o755, USER)
    refused = [
        written(place / "world", content, 0o777, USER),
        written(place / "other", content, 0o755, OTHER_USER),
    ]
    with (
        candidate(root, program, own_file) as access,
        opened(mapping_of(access, own_file)) as mapped,
    ):
        assert mapped.handle
    for path in refused:
        with candidate(root, program, path) as access, pytest.raises(Unreadable):
            mapping_of(access, path)


def test_devices_and_pipes_are_not_opened(access: SocketAccess, place: Path) -> None:
    os.mkfifo(place / "pipe")
    for path in (str(place / "pipe"), "/dev/zero", "/dev/ptmx", str(place)):
        with pytest.raises(Unreadable):
            access.file(path)
        assert access.file_id(path) is None


def test_links_do_not_leave_the_root_of_the_process(root: RootPart, place: Path) -> None:
    program = (
        "import os, sys; os.open('/', 0); os.chroot(sys.argv[1]); os.chdir('/');"
        f"os.setgid({USER}); os.setuid({USER});" + WAIT
    )
    make_directory(place / "etc")
    (place / "etc/absolute").symlink_to("/etc/passwd")
    (place / "etc/relative").symlink_to("../../../../../../etc/passwd")
    (place / "etc/inside").symlink_to("/etc/real")
    written(place / "etc/real")
    with (
        process_of(program, user=0, arguments=(str(place),)) as process,
        root.bound(process.pid) as bound,
    ):
        access = SocketAccess(bound)
        assert access.file("/etc/inside") == b"port 1\n"
        for path in ("/etc/absolute", "/etc/relative", "/../../etc/passwd", str(place)):
            assert access.file(path) is None
            assert access.names(path) == []


def test_links_that_the_kernel_makes_up_are_not_followed(root: RootPart, place: Path) -> None:
    (place / "own").symlink_to("/proc/self/root/etc/passwd")
    (place / "roots").symlink_to("/proc/self/root/etc")
    with process_of(WAIT) as process, root.bound(process.pid) as bound:
        access = SocketAccess(bound)
        # All of those belong to the process that opens them, not to the candidate.
        files = ("/proc/self/exe", "/proc/self/fd/0", "/proc/self/environ")
        for path in (str(place / "own"), *files):
            with pytest.raises(Unreadable, match=r"not followed|Permission denied"):
                access.file(path)
        with pytest.raises(Unreadable, match=r"not followed|Permission denied"):
            access.names(str(place / "roots"))


def test_a_file_is_opened_with_the_rights_of_the_process(root: RootPart, place: Path) -> None:
    of_root = written(place / "root", mode=0o600)
    of_other = written(place / "other", mode=0o640, user=OTHER_USER)
    own = written(place / "own", mode=0o600, user=USER)
    make_directory(place / "closed", 0o700)
    inside = written(place / "closed/file")
    with process_of(WAIT) as process, root.bound(process.pid) as bound:
        access = SocketAccess(bound)
        assert access.file(own) == b"port 1\n"
        for path in (of_root, of_other, inside):
            with pytest.raises(Unreadable, match="Permission denied"):
                access.file(path)
        assert access.file_id(inside) is None
        with pytest.raises(Unreadable, match="Permission denied"):
            access.names(str(place / "closed"))
    with process_of(WAIT, user=0) as process, root.bound(process.pid) as bound:
        access = SocketAccess(bound)
        assert access.file("/etc/passwd")
        for path in (of_root, own, inside):
            with pytest.raises(Unreadable, match="Permission denied"):
                access.file(path)


def test_memory_is_read_of_a_server_that_was_examined_and_never_of_root_s(root: RootPart) -> None:
    with process_of(WAIT) as process, root.bound(process.pid) as bound:
        access = SocketAccess(bound)
        with pytest.raises(Unreadable, match="Permission denied"):
            access.memory()
        os.close(access.executable().fd)
        os.close(access.memory())
    with process_of(WAIT, user=0) as process, root.bound(process.pid) as bound:
        access = SocketAccess(bound)
        os.close(access.executable().fd)
        with pytest.raises(Unreadable, match="Permission denied"):
            access.memory()


def test_what_is_too_large_is_not_given(access: SocketAccess, place: Path) -> None:
    fits = written(place / "fits", bytes(1 << 20))
    large = written(place / "large", bytes((1 << 20) + 1))
    make_directory(place / "many")
    for number in range(1024):
        written(place / f"many/{number}")
    assert access.file(fits) == bytes(1 << 20)
    with pytest.raises(Unreadable, match="too large"):
        access.file(large)
    assert len(access.names(str(place / "many"))) == 1024
    written(place / "many/last")
    with pytest.raises(Unreadable, match="more than 1024"):
        access.names(str(place / "many"))


def test_a_file_system_that_never_answers_costs_only_its_own_process(
    root: RootPart, access: SocketAccess, place: Path
) -> None:
    good, hanging = written(place / "good"), place / "hanging"
    hanging.mkdir()
    with candidate(root) as other, silent_file_system(hanging):
        with pytest.raises(Unreadable, match="does not answer"):
            access.file(str(hanging / "file"))
        with pytest.raises(Unreadable, match="nothing more"):
            access.file(good)
        assert other.file(good) == b"port 1\n"
        assert ask(root.connection, Kind.EXE, pid=os.getpid()).text


#: Makes a process of this number, if nobody else has it: clone3(2), struct clone_args. The signal
#: of its end is the fifth word; set_tid and its size follow the TLS.
_TAKE_NUMBER = """
import ctypes, os, struct, sys, time
number = (ctypes.c_int * 1)(int(sys.argv[1]))
args = struct.pack("=11Q", 0, 0, 0, 0, 17, 0, 0, 0, ctypes.addressof(number), 1, 0)
libc = ctypes.CDLL(None)
made = libc.syscall(435, args, len(args))
if not made:
    libc.prctl(1, 9)  # it ends with its parent
    os.write(1, b"here\\n")
    time.sleep(600)
if made < 0:
    print("somebody else has it", flush=True)
sys.stdin.read()
"""


def test_a_process_is_not_mistaken_for_the_next_of_its_number(root: RootPart, place: Path) -> None:
    path = written(place / "good")
    with ExitStack() as later:
        with process_of(WAIT) as process:
            bound = later.enter_context(root.bound(process.pid))
        number = str(process.pid)
        later.enter_context(process_of(_TAKE_NUMBER, user=0, arguments=(number,)))
        assert Path(f"/proc/{process.pid}").exists()
        access = SocketAccess(bound)
        for opening in (access.executable, access.memory, lambda: access.mapped(1, 2)):
            with pytest.raises(Unreadable):
                opening()
        with pytest.raises(Unreadable):
            assert access.file(path) is None, "no root directory is left"
            raise Unreadable("")
        assert access.proc(ProcFile.CMDLINE) == b""
        assert access.sockets() == frozenset()
