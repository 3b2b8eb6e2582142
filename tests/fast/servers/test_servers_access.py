# SPDX-License-Identifier: Apache-2.0
"""All access to a candidate's files goes through its `Access`."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import qjoule.servers
from qjoule.servers.access import FILE_BYTES_MAX, PROC_BYTES_MAX, ProcFile, Unreadable, opened
from qjoule.servers.direct_access import DirectAccess, FileAccess, open_regular

SERVERS = Path(qjoule.servers.__file__).parent

#: Functions that reach the file system by a path.
BY_PATH = {"open", "stat", "lstat", "readlink", "iterdir", "glob", "rglob", "listdir", "scandir"}
BY_PATH |= {"read_text", "read_bytes", "exists", "is_file", "is_dir", "samefile"}

#: Modules that do not deal with a candidate's files, and why.
OTHERS = {
    "direct_access.py": "the one that does it",
    "in_root.py": "its calls of openat2(2)",
    "cassandra/agent.py": "our own files, which a JVM is given",
    "jvm/agent_loader.py": "gives them to a JVM, as its user",
    "jvm/attach.py": "talks to a JVM as its user",
    "mysql/throwaway.py": "a server of our own",
    "figure_files.py": "files of this package",
    "registry.py": "a file of this package",
    "registry_header.py": "a document that is made of this package",
    "support_table.py": "a document that is made of this package",
}


def calls_by_path(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else None
            name = function.id if isinstance(function, ast.Name) else name
            if name in BY_PATH and ast.unparse(function) != "re.match":
                yield f"{node.lineno}: {ast.unparse(function)}"


def test_only_direct_access_opens_paths() -> None:
    assert list(calls_by_path("path.open(); os.readlink(x)")) == ["1: path.open", "1: os.readlink"]
    calls = {
        str(path.relative_to(SERVERS)): list(calls_by_path(path.read_text()))
        for path in SERVERS.rglob("*.py")
    }
    assert calls.keys() >= OTHERS.keys()
    assert [name for name in calls if calls[name] and name not in OTHERS] == []


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
