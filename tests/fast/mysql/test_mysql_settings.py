# SPDX-License-Identifier: Apache-2.0
"""MySQL's version and its configuration, from what the server itself would read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qjoule.servers.access import below_root
from qjoule.servers.candidate import Candidate
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.mysql.identify import _mysql_version
from qjoule.servers.mysql.settings import read_options
from servers.fake_proc import FakeProc

HELP = b"\0For the legacy version before MySQL 8.0.29, see MySQL 8.0.29 and mysql-8.0.29\0"


@pytest.mark.parametrize(
    ("strings", "version"),
    [
        (HELP + b"mysqld-9.7\0mysqld\0MySQL 9.7.4\0", b"9.7.4"),
        (HELP + b"mysqld-9.7\0mysqld\0", b"9.7"),
        (b"\0mysqld-8.0\0../mysql-8.0.15/sql/a.cc\0 before MySQL 5.7.9 \0", b"8.0.15"),
        (b"\0../mysql-8.0.15/sql/a.cc\0../mysql-8.0.15/b.cc\0MySQL 5.7.9 \0", b"8.0.15"),
        (b"\0mysqld-8.0\0mysqld-8.4\0MySQL 8.4.1\0", b"8.4.1"),  # two: neither is believed
        (b"\0mysqld-8\0mysqld-x.y\0", b""),
        (b"", b""),
    ],
)
def test_the_version_is_of_the_servers_own_series(strings: bytes, version: bytes) -> None:
    assert _mysql_version(strings) == version


def persisted(tmp_path: Path, content: Any, *arguments: str, flavour: str = "mysql") -> Any:
    """The options of a server below a root of its own, with this mysqld-auto.cnf."""
    proc, root = FakeProc(tmp_path), tmp_path / "root"
    data = root / "var" / "lib" / "mysql"
    data.mkdir(parents=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (data / "mysqld-auto.cnf").write_text(text)
    entry = proc.add(
        7, "/usr/sbin/mysqld", root=root, cwd=str(data), arguments=["--no-defaults", *arguments]
    )
    candidate = Candidate(DirectAccess(entry, None), "/usr/sbin/mysqld", 7)
    return read_options(candidate, flavour, "8.4.1")


STORED = {
    "Version": 2,
    "mysql_dynamic_variables": {
        "tls_version": {"Value": "", "Metadata": {"Host": "h", "User": "u", "Timestamp": 1}},
        "max_connections": {"Value": "152", "Metadata": {}},
    },
    "mysql_static_variables": {"thread_handling": {"Value": "pool-of-threads"}},
}


def test_persisted_variables_count_below_a_chroot(tmp_path: Path) -> None:
    options = persisted(tmp_path, STORED, "--tls-version=TLSv1.2")
    assert options.text("tls-version") == ""
    assert options.source("tls-version") == "/var/lib/mysql/mysqld-auto.cnf"
    assert options.text("thread-handling") == "pool-of-threads"
    assert not options.problem


def test_persisted_variables_that_are_not_loaded(tmp_path: Path) -> None:
    options = persisted(tmp_path, STORED, "--skip-persisted-globals-load")
    assert options.text("thread-handling") is None


def test_mariadb_has_no_such_file(tmp_path: Path) -> None:
    assert persisted(tmp_path, STORED, flavour="mariadb").text("thread-handling") is None


@pytest.mark.parametrize("content", ["{", "[" * 100_000, '{"a": 1.5}', '{"a": 1, "a": 2}'])
def test_a_damaged_file_leaves_the_configuration_unknown(tmp_path: Path, content: str) -> None:
    assert "mysqld-auto.cnf" in persisted(tmp_path, content).problem


@pytest.mark.parametrize("content", [[], {"a": [1]}, {"a": {"Value": 3}}, "null"])
def test_a_file_with_something_else_has_no_variables(tmp_path: Path, content: Any) -> None:
    options = persisted(tmp_path, content)
    assert (options.values.keys(), options.problem) == (set(), "")


@pytest.mark.parametrize(
    ("path", "root", "seen"),
    [
        ("/srv/jail/var/lib", "/srv/jail", "/var/lib"),
        ("/srv/jail", "/srv/jail", "/"),
        ("/srv/jailer", "/srv/jail", "/srv/jailer"),
        ("/var/lib", "/", "/var/lib"),
        ("/", "/", "/"),
        ("", "", ""),
    ],
)
def test_paths_as_the_process_sees_them(path: str, root: str, seen: str) -> None:
    assert below_root(path, root) == seen
