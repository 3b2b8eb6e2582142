# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a /proc made of files, with processes that try to harm whoever examines them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qjoule.servers.candidate import Candidate
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.types import Examined
from servers.fake_proc import FakeProc, candidate
from servers.hostile import examine_alone, facts_of
from servers.toy_elf import MARIADB_10_11, MYSQL_8, POSTGRES, toy_server

TOYS = {
    "mariadbd": ("10.11.19-MariaDB", [MARIADB_10_11]),
    "mysqld": ("MySQL 8.0.36 ", [MYSQL_8]),
    "postgres": ("PostgreSQL 15.20 (Debian) on x86_64", POSTGRES),
    "mongod": ("storage.dbPath\\0systemLog.destination", []),
    "java": ("", []),
}


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Executables that look like servers, by name."""
    directory = tmp_path_factory.mktemp("toys")
    return {
        name: toy_server(directory / name, functions, banner=banner)
        for name, (banner, functions) in TOYS.items()
    }


@pytest.fixture
def write(fake: FakeProc) -> Callable[[str, bytes], None]:
    """Writes a file below the root of all processes."""

    def write_file(path: str, content: bytes) -> None:
        file = fake.host / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    return write_file


@pytest.fixture
def process(fake: FakeProc) -> Callable[..., Candidate]:
    """A process with arguments and the working directory /data."""
    return lambda *arguments: candidate(
        fake.add(100, "/bin/true", arguments=arguments, cwd="/data")
    )


@pytest.fixture
def run(fake: FakeProc, toys: dict[str, Path]) -> Callable[..., Examined]:
    """Examines a process that runs one of the toys, within resource limits."""

    def run_toy(name: str, *arguments: str, pid: int = 100) -> Examined:
        entry = fake.tree / str(pid)
        if not entry.exists():
            fake.add(pid, str(toys[name]), arguments=arguments, cwd="/data")
        return examine_alone(DirectAccess(entry, fake.host), facts_of(toys[name], pid=pid))

    return run_toy
