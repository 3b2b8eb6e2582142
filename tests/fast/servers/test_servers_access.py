# SPDX-License-Identifier: Apache-2.0
"""What an `Access` opens of a candidate's files, and how much of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from qjoule import servers
from qjoule.servers.access import FILE_BYTES_MAX, PROC_BYTES_MAX, ProcFile, Unreadable, opened
from qjoule.servers.direct_access import DirectAccess, FileAccess, open_regular

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
