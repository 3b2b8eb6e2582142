# SPDX-License-Identifier: Apache-2.0
"""What a process that only reads can no longer do, and what it still can. Also: what an `Access`
opens of a candidate's files.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from qjoule import servers
from qjoule.servers.access import FILE_BYTES_MAX, PROC_BYTES_MAX, ProcFile, Unreadable, opened
from qjoule.servers.direct_access import DirectAccess, FileAccess, open_regular

_CONFINED = """
import ctypes, errno, os, signal, socket, subprocess, sys, threading
from qjoule.root_part.reader_filter import confine_reader
gate, go, done = threading.Event(), threading.Event(), []
libc = ctypes.CDLL(None, use_errno=True)
def refused(what, *arguments):
    ctypes.set_errno(0)
    result = getattr(libc, what)(*arguments)
    return result == -1 and ctypes.get_errno() == errno.EPERM
def later():
    gate.set()
    go.wait()
    done.append(refused("ptrace", 0, 0, 0, 0))
older = threading.Thread(target=later)
older.start()
gate.wait()
confine_reader()
go.set()
older.join()
assert done == [True], "a thread that was there before"
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "code",
    [
        "os.execv('/bin/true', ['true'])",
        "os.fork()",
        "socket.socket(socket.AF_INET)",
        "os.kill(os.getppid(), 0)",
        "os.setresuid(0, 0, 0)",
        "os.chmod(sys.executable, 0o755)",
        "os.symlink('a', '/tmp/never-made')",
        "os.memfd_create('x')",
    ],
)
def test_it_cannot_start_connect_or_change_anything(code: str) -> None:
    done = python(_CONFINED + code)
    assert done.returncode == 1, done.stdout
    assert "PermissionError: [Errno 1]" in done.stderr.splitlines()[-1], done.stderr


def test_calls_of_the_kernel_are_refused() -> None:
    calls = {
        "ptrace": "0, 0, 0, 0",
        "mount": "None, b'/', None, 0, None",
        "unshare": "0x10000000",
        "setns": "0, 0",
        "process_vm_readv": "os.getpid(), None, 0, None, 0, 0",
        "prctl": "4, 1, 0, 0, 0",
    }
    code = "".join(f"assert refused({name!r}, {a}), {name!r}\n" for name, a in calls.items())
    bpf_perf_io_uring = "(321, 298, 425)" if os.uname().machine == "x86_64" else "(280, 241, 425)"
    code += (
        f"for number in {bpf_perf_io_uring}: assert refused('syscall', number, 0, 0, 0), number\n"
    )
    done = python(_CONFINED + code)
    assert done.returncode == 0, done.stderr


def test_neither_it_nor_its_children_type_at_a_terminal() -> None:
    done = python("""
import ctypes, fcntl, os, pty, subprocess, sys, termios
from qjoule.root_part.reader_filter import keep_from_typing
ours, theirs = pty.openpty()
keep_from_typing()
libc = ctypes.CDLL(None, use_errno=True)
for fd in (theirs, os.open("/dev/null", os.O_RDONLY)):
    for command in (termios.TIOCSTI, termios.TIOCSTI | 1 << 32, termios.TIOCLINUX):
        assert libc.ioctl(fd, ctypes.c_ulong(command), b"x") == -1
        assert ctypes.get_errno() == 1, command
assert fcntl.ioctl(theirs, termios.TIOCGWINSZ, bytes(8))
child = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b'x')"
done = subprocess.run([sys.executable, "-c", child], stdin=theirs, capture_output=True, text=True)
assert "PermissionError" in done.stderr or "Errno 1" in done.stderr, done.stderr
""")
    assert done.returncode == 0, done.stderr


def test_it_still_writes_tables_waits_and_starts_threads(tmp_path: Path) -> None:
    code = f"""
import asyncio, pyarrow as pa, pyarrow.parquet as pq
os.chdir({str(tmp_path)!r})
os.mkdir("table")
pq.write_table(pa.table({{"a": list(range(100_000))}}), "table/.x")
os.rename("table/.x", "table/part")
os.fsync(os.open("table", os.O_RDONLY))
assert pq.read_table("table/part").num_rows == 100_000
assert os.listdir("table") == ["part"]
os.unlink("table/part")
os.rmdir("table")
threading.Thread(target=done.append, args=(1,)).start()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
asyncio.run(asyncio.sleep(0))
print("ended")
"""
    done = python(_CONFINED + code)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


# ---- what an `Access` opens of a candidate's files, and how much of it ---------------------------

#: Functions that reach the file system by a path.
BY_PATH = {"open", "stat", "lstat", "readlink", "iterdir", "glob", "rglob", "listdir", "scandir"}
BY_PATH |= {"read_text", "read_bytes", "exists", "is_file", "is_dir", "samefile"}
#: Modules of servers' folders that examine no candidate.
OTHERS = {"agent.py", "throwaway.py"}


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    entry = tmp_path / "100"
    (entry / "root").mkdir(parents=True)
    (entry / "net").mkdir()
    return entry


def test_only_regular_files_are_opened(entry: Path) -> None:
    """Opening a named pipe blocks until its other end opens, and opening a device may have an
    effect.
    """
    os.mkfifo(entry / "exe")
    os.mkfifo(entry / "root" / "my.cnf")
    access = DirectAccess(entry)
    assert access.file_id("/my.cnf") is None
    for call in (
        access.executable,
        lambda: access.file("/my.cnf"),
        lambda: open_regular(Path("/dev/null"), "/dev/null"),
    ):
        with pytest.raises(Unreadable, match="not a regular file"):
            call()


def test_what_is_read_has_bounds(entry: Path) -> None:
    (entry / "root" / "big").write_bytes(b"x" * (FILE_BYTES_MAX + 1))
    with (entry / "cmdline").open("wb") as command_line:
        command_line.truncate(1 << 30)
    access = DirectAccess(entry)
    assert len(access.proc(ProcFile.CMDLINE)) == PROC_BYTES_MAX
    with pytest.raises(Unreadable, match="larger than 1 MiB"):
        access.file("/big")
    (entry / "root" / "many").mkdir()
    for number in range(1025):
        (entry / "root" / "many" / str(number)).touch()
    with pytest.raises(Unreadable, match="more than 1024"):
        access.names("/many")


def test_no_path_leaves_its_root(entry: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (entry / "root" / "link").symlink_to(tmp_path / "secret")
    access = DirectAccess(entry)
    for path in ("/link", "/../../secret", "../../secret", "/../100/../secret"):
        assert access.file(path) is None
        assert access.file_id(path) is None
    for path in ("/a\0b", "/\ud800"):
        with pytest.raises(Unreadable):
            access.file(path)


def test_an_executable_keeps_its_identity(tmp_path: Path) -> None:
    path = tmp_path / "mysqld"
    path.write_bytes(b"1234")
    with opened(FileAccess(path).executable()) as file:
        path.unlink()
        path.write_bytes(b"other")
        assert os.pread(file.fd, 10, 0) == b"1234"
        assert (file.handle, file.identity.size, file.path) == (0, 4, str(path))
        status = os.fstat(file.fd)
        assert file.identity.key == (status.st_dev, status.st_ino)


def test_servers_folders_read_through_an_access_alone() -> None:
    for path in Path(servers.__file__).parent.glob("*/*.py"):
        if path.parent.name != "jvm" and path.name not in OTHERS:
            assert BY_PATH.isdisjoint(re.findall(r"(\w+)\(", path.read_text())), path
