# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a /proc made of files, with processes that try to harm whoever examines them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qjoule.servers.candidate import Candidate
from qjoule.servers.direct_access import DirectAccess, FileAccess
from qjoule.servers.examined import Examined
from servers.examined import candidate
from servers.fake_proc import FakeProc
from servers.hostile import examine_alone, facts_of
from servers.toy_elf import MARIADB_10_11, MYSQL_8, POSTGRES, toy_server


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Executables that look like servers, by name."""
    directory = tmp_path_factory.mktemp("toys")
    banners = {
        "mariadbd": ("10.11.19-MariaDB", [MARIADB_10_11]),
        "mysqld": ("MySQL 8.0.36 ", [MYSQL_8]),
        "postgres": ("PostgreSQL 15.20 (Debian) on x86_64", POSTGRES),
        "mongod": ("storage.dbPath\\0systemLog.destination", []),
        "java": ("", []),
    }
    return {
        name: toy_server(directory / name, functions, banner=banner)
        for name, (banner, functions) in banners.items()
    }


@pytest.fixture
def write(fake: FakeProc) -> Callable[[str, bytes], None]:
    """Writes a file below the root of all processes."""

    def one(path: str, content: bytes) -> None:
        where = fake.host / path.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(content)

    return one


@pytest.fixture
def process(fake: FakeProc) -> Callable[..., Candidate]:
    """A process with arguments and the working directory /data."""

    def one(*arguments: str) -> Candidate:
        return candidate(fake.add(100, "/bin/true", arguments=arguments, cwd="/data"))

    return one


@pytest.fixture
def run(fake: FakeProc, toys: dict[str, Path]) -> Callable[..., Examined]:
    """Examines a process that runs one of the toys, within resource limits."""

    def one(name: str, *arguments: str, pid: int = 100) -> Examined:
        entry = fake.tree / str(pid)
        if not entry.exists():
            fake.add(pid, str(toys[name]), arguments=arguments, cwd="/data")
        return examine_alone(DirectAccess(entry, fake.host), facts_of(toys[name], pid=pid))

    return one


@pytest.fixture
def look_into(tmp_path: Path) -> Callable[[bytes | Path], Examined]:
    """Examines an executable that is not running, within resource limits."""

    def one(content: bytes | Path) -> Examined:
        path = content if isinstance(content, Path) else tmp_path / "mysqld"
        if isinstance(content, bytes):
            path.write_bytes(content)
        return examine_alone(FileAccess(path), facts_of(path))

    return one
