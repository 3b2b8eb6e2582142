"""What the root part opens of somebody else's process, and what it refuses."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from qjoule.root_part.access import SocketAccess
from qjoule.root_part.protocol import MAX_KEPT, Kind, Refused, RootPartGone, What, ask
from qjoule.servers.access import Opened, ProcFile, Unreadable, opened
from root.hostile.bound import (
    OTHER_USER,
    USER,
    Running,
    process_of,
    running_root_part,
    silent_file_system,
)
from root.support.root_part import PYTHON

pytestmark = pytest.mark.root

_WAIT = "print('here', flush=True); __import__('sys').stdin.read()"
_REQUEST_BYTES = 32 + 4096


@pytest.fixture
def files() -> Iterator[Path]:
    """A directory that the candidates can reach."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def root() -> Iterator[Running]:
    with running_root_part() as running:
        yield running


@contextmanager
def candidate(root: Running, program: str = _WAIT, *arguments: str) -> Iterator[SocketAccess]:
    with process_of(program, arguments=arguments) as process, root.bound(process.pid) as bound:
        yield SocketAccess(bound)


def errno_of(connection: socket.socket, kind: Kind, **about: object) -> int:
    with pytest.raises(Refused) as refused:
        ask(connection, kind, **about)  # type: ignore[arg-type]
    return refused.value.errno


def written(path: Path, content: bytes = b"port 1\n", mode: int = 0o644, user: int = 0) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    os.chown(path, user, user)
    return str(path)


def made(path: Path, mode: int = 0o755) -> None:
    path.mkdir()
    path.chmod(mode)


def is_file(found: Opened, path: str) -> bool:
    there, given = Path(path).stat(), os.fstat(found.fd)
    same = (there.st_dev, there.st_ino)
    return found.identity.key == same and (given.st_dev, given.st_ino) == same


def test_executable_files_and_lists_are_those_of_the_process(root: Running, files: Path) -> None:
    program = (
        "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0));"
        f"open({str(files / 'socket:[1]')!r}); import ctypes;"
        "ctypes.CDLL(None).prctl(15, b'two\\nlines');"
        "import os; print(os.fstat(s.fileno()).st_ino, flush=True); __import__('sys').stdin.read()"
    )
    path = written(files / "server.conf")
    written(files / "socket:[1]")
    with process_of(program) as process, root.bound(process.pid) as bound:
        access = SocketAccess(bound)
        with opened(access.executable()) as found, opened(access.executable()) as again:
            assert is_file(found, PYTHON)
            assert found.handle == again.handle > 0
            assert found.path == str(Path(PYTHON).resolve())
        assert access.file(path) == b"port 1\n"
        assert access.file(str(files / "none")) is None
        assert access.file(path + "/none") is None
        assert access.file_id(path) == (Path(path).stat().st_dev, Path(path).stat().st_ino)
        assert access.names(str(files)) == ["server.conf", "socket:[1]"]
        assert access.names(str(files / "none")) == []
        inodes = {Path(f"/proc/{process.pid}/fd/{n}").stat().st_ino for n in (3,)}
        assert access.sockets() == inodes
        assert access.threads() == ["two\nlines"]
        assert access.working_directory() == "/"
        assert access.network() == str(Path("/proc/self/ns/net").readlink())
        assert access.proc(ProcFile.CMDLINE).startswith(PYTHON.encode())
        assert b"00:00000000" in access.proc(ProcFile.TCP)


def test_memory_and_mapped_files_can_be_read(root: Running) -> None:
    with candidate(root) as access:
        lines = access.proc(ProcFile.MAPS).decode().splitlines()
        line = next(line for line in lines if "libc.so" in line)
        start, end = (int(word, 16) for word in line.split()[0].split("-"))
        with opened(access.mapped(start, end)) as found:
            assert is_file(found, line.split()[-1])
            assert found.handle
        memory = access.memory()
        assert os.pread(memory, 4, start) == b"\x7fELF"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(memory, b"x", start)
        os.close(memory)
        for wrong in ((start, end - 1), (0, 0), (end, start)):
            with pytest.raises(Unreadable):
                access.mapped(*wrong)


def test_a_mapped_file_that_others_may_change_is_not_given(root: Running, files: Path) -> None:
    program = (
        "import mmap, os, sys; f = os.open(sys.argv[1], 0);"
        f"m = mmap.mmap(f, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ); {_WAIT}"
    )
    content = b"x" * 4096
    kept = written(files / "own", content, 0o755, USER)
    refused = [
        written(files / "world", content, 0o777, USER),
        written(files / "other", content, 0o755, OTHER_USER),
    ]
    with candidate(root, program, kept) as access, opened(_mapping_of(access, kept)) as found:
        assert found.handle
    for path in refused:
        with candidate(root, program, path) as access, pytest.raises(Unreadable):
            _mapping_of(access, path)


def _mapping_of(access: SocketAccess, path: str) -> Opened:
    maps = access.proc(ProcFile.MAPS).decode()
    start, end = next(line for line in maps.splitlines() if path in line).split()[0].split("-")
    return access.mapped(int(start, 16), int(end, 16))


def test_devices_and_pipes_are_not_opened(root: Running, files: Path) -> None:
    os.mkfifo(files / "pipe")
    with candidate(root) as access:
        for path in (str(files / "pipe"), "/dev/zero", "/dev/ptmx", str(files)):
            with pytest.raises(Unreadable):
                access.file(path)
            assert access.file_id(path) is None
        for path in (str(files / "pipe"), "/dev/zero"):
            assert access.names(path) == []


def test_links_do_not_leave_the_root_of_the_process(root: Running, files: Path) -> None:
    program = (
        "import os, sys; os.open('/', 0); os.chroot(sys.argv[1]); os.chdir('/');"
        f"os.setgid({USER}); os.setuid({USER});" + _WAIT
    )
    made(files / "etc")
    (files / "etc/absolute").symlink_to("/etc/passwd")
    (files / "etc/relative").symlink_to("../../../../../../etc/passwd")
    (files / "etc/inside").symlink_to("/etc/real")
    written(files / "etc/real")
    with (
        process_of(program, user=0, arguments=(str(files),)) as process,
        root.bound(process.pid) as bound,
    ):
        access = SocketAccess(bound)
        assert access.file("/etc/inside") == b"port 1\n"
        for path in ("/etc/absolute", "/etc/relative", "/../../etc/passwd", str(files)):
            assert access.file(path) is None
            assert access.names(path) == []


def test_links_that_the_kernel_makes_up_are_not_followed(root: Running, files: Path) -> None:
    (files / "own").symlink_to("/proc/self/root/etc/passwd")
    (files / "roots").symlink_to("/proc/self/root/etc")
    with process_of(_WAIT) as process, root.bound(process.pid, uid=0, gid=0) as bound:
        access = SocketAccess(bound)
        for path in (str(files / "own"), "/proc/self/exe", "/proc/self/fd/0"):
            with pytest.raises(Unreadable, match="not followed"):
                access.file(path)
        with pytest.raises(Unreadable, match="not followed"):
            access.names(str(files / "roots"))
        # Those are the files of who opens them, not the candidate's.
        assert access.file("/proc/self/environ") == b""
        assert access.file("/proc/self/maps") == b""


def test_a_file_is_opened_with_the_rights_of_the_process(root: Running, files: Path) -> None:
    of_root = written(files / "root", mode=0o600)
    of_other = written(files / "other", mode=0o640, user=OTHER_USER)
    own = written(files / "own", mode=0o600, user=USER)
    made(files / "closed", 0o700)
    inside = written(files / "closed/file")
    with process_of(_WAIT) as process:
        with root.bound(process.pid) as bound:
            access = SocketAccess(bound)
            assert access.file(own) == b"port 1\n"
            for path in (of_root, of_other, inside):
                with pytest.raises(Unreadable, match="Permission denied"):
                    access.file(path)
            assert access.file_id(inside) is None
            with pytest.raises(Unreadable, match="Permission denied"):
                access.names(str(files / "closed"))
        with root.bound(process.pid, groups=(5, OTHER_USER)) as bound:
            assert SocketAccess(bound).file(of_other) == b"port 1\n"
        with root.bound(process.pid, uid=0, gid=0) as bound:
            assert SocketAccess(bound).file(of_root) == b"port 1\n"
            # The user root, not root's power over the files of others.
            with pytest.raises(Unreadable, match="Permission denied"):
                SocketAccess(bound).file(own)


def test_what_is_too_large_is_not_given(root: Running, files: Path) -> None:
    fits = written(files / "fits", bytes(1 << 20))
    large = written(files / "large", bytes((1 << 20) + 1))
    made(files / "many")
    for number in range(1024):
        written(files / f"many/{number}")
    with candidate(root) as access:
        assert access.file(fits) == bytes(1 << 20)
        with pytest.raises(Unreadable, match="too large"):
            access.file(large)
        assert len(access.names(str(files / "many"))) == 1024
        written(files / "many/last")
        with pytest.raises(Unreadable, match="more than 1024"):
            access.names(str(files / "many"))


def test_a_file_system_that_never_answers_costs_only_its_own_process(
    root: Running, files: Path
) -> None:
    good = written(files / "good")
    hanging = files / "hanging"
    hanging.mkdir()
    with candidate(root) as other, candidate(root) as access, silent_file_system(hanging):
        with pytest.raises(Unreadable, match="does not answer"):
            access.file(str(hanging / "file"))
        with pytest.raises(Unreadable, match="nothing more"):
            access.file(good)
        assert other.file(good) == b"port 1\n"
        assert ask(root.connection, Kind.EXE, pid=os.getpid()).text


def test_a_process_is_not_mistaken_for_the_next_of_its_number(root: Running, files: Path) -> None:
    path = written(files / "good")
    with ExitStack() as later:
        with process_of(_WAIT) as process:
            bound = later.enter_context(root.bound(process.pid))
        later.enter_context(_process_numbered(process.pid))
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


@contextmanager
def _process_numbered(pid: int) -> Iterator[None]:
    """A process of this very number: of this test, or of somebody who was faster."""
    #: clone3(2), struct clone_args: exit_signal is the fifth, set_tid and its size follow the TLS.
    program = f"""
import ctypes, os, struct, sys, time
number = (ctypes.c_int * 1)({pid})
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
    with process_of(program, user=0):
        yield


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
        # Its answer comes before the end of a child, which is waited for afterwards.
        while root.children != children:
            assert access.file_id(path)


def test_one_process_is_given_few_handles(root: Running, files: Path) -> None:
    """There is room for some hundreds, for all candidates together."""
    program = (
        "import mmap, os, sys; paths = sys.argv[1:];"
        "maps = [mmap.mmap(os.open(p, 0), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ) for p in paths];"
        f"{_WAIT}"
    )
    paths = [written(files / f"library{n}", bytes([n]) * 4096, 0o755) for n in range(20)]
    with candidate(root, program, *paths) as access:
        handles = []
        for path in paths:
            with opened(_mapping_of(access, path)) as found:
                handles.append(found.handle)
                assert os.pread(found.fd, 4096, 0)
    assert all(handles[:MAX_KEPT])
    assert len(set(handles[:MAX_KEPT])) == MAX_KEPT
    assert not any(handles[MAX_KEPT:])


@pytest.mark.parametrize(
    "name", ["", "mem", "fd/0", "exe", "root/etc/passwd", "../1/environ", "net/../environ", "stat "]
)
def test_only_known_files_of_proc_are_opened(root: Running, name: str) -> None:
    with process_of(_WAIT) as process, root.bound(process.pid) as bound:
        about = {"number": What.PROC, "text": name.encode()}
        assert errno_of(bound, Kind.OPEN, **about) == errno.EACCES
        assert errno_of(bound, Kind.OPEN, number=99) == errno.EINVAL


def test_one_process_is_all_that_its_socket_reaches(root: Running) -> None:
    with process_of(_WAIT) as process, root.bound(process.pid) as bound:
        for kind in set(Kind) - {Kind.OPEN}:
            assert errno_of(bound, kind, pid=1, text=b"/usr/bin/sleep") == errno.EPERM
        # The process of the request is not looked at.
        reply = ask(bound, Kind.OPEN, pid=1, number=What.PROC, text=b"stat")
        assert os.read(reply.fd, 20).startswith(str(process.pid).encode())
        os.close(reply.fd)


@pytest.mark.parametrize("size", [1, _REQUEST_BYTES - 1, _REQUEST_BYTES + 1, 65536])
def test_who_talks_nonsense_is_let_go(root: Running, size: int) -> None:
    with process_of(_WAIT) as process, root.bound(process.pid) as bound:
        bound.send(bytes(size))
        with pytest.raises(RootPartGone):
            ask(bound, Kind.OPEN, number=What.CWD)
        assert ask(root.connection, Kind.EXE, pid=process.pid).text


def test_no_descriptor_is_left_by_who_sends_too_many(root: Running) -> None:
    with process_of(_WAIT) as process:
        before = root.descriptors
        for _ in range(20):
            with root.bound(process.pid) as bound:
                socket.send_fds(bound, [struct.pack("=I", Kind.OPEN).ljust(_REQUEST_BYTES)], [0, 0])
                with pytest.raises(RootPartGone):
                    ask(bound, Kind.OPEN, number=What.CWD)
        assert ask(root.connection, Kind.EXE, pid=process.pid).text
        assert root.descriptors == before


def test_sockets_are_bound_within_limits(root: Running) -> None:
    with process_of(_WAIT) as process:
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
    """It was opened before it was looked at."""
    path = written(files / "of_user", mode=0o755, user=USER)
    assert stat.S_ISREG(Path(path).stat().st_mode)
    head = struct.pack("=IiIIQQ", Kind.INSTALLED, 0, 0, 0, 0, 0)
    root.connection.send(head + path.encode().ljust(4096, b"\0"))
    content, fds, _, _ = socket.recv_fds(root.connection, 65536, 4)
    assert struct.unpack_from("=i", content) == (-errno.EACCES,)
    assert fds == []
