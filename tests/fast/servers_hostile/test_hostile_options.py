# SPDX-License-Identifier: Apache-2.0
"""Option files of MySQL and files of PostgreSQL that are endless or belong to somebody else."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from qjoule.servers.candidate import Candidate
from qjoule.servers.examined import Examined
from qjoule.servers.postgres.settings import encryption as postgres_encryption
from qjoule.servers.types import Fact
from servers.examined import settings_of
from servers.fake_proc import FakeProc

Write = Callable[[str, bytes], None]
SECRET = "root:$6$secretsecret:19000:0:99999:7:::"


def of_mysql(candidate: Candidate) -> Fact:
    return settings_of(candidate, "mariadb", "10.11.19").encryption


def unknown(fact: Fact, words: str) -> None:
    assert fact.value is None
    assert words in fact.source
    assert "\n" not in fact.source
    assert len(fact.source) < 1000


def test_a_directory_that_includes_itself(process: Callable[..., Candidate], write: Write) -> None:
    for number in range(1000):
        write(f"/etc/d/{number:04}.cnf", b"!includedir /etc/d\n")
    write("/etc/my.cnf", b"!includedir /etc/d\n")
    unknown(of_mysql(process()), "too many option files")


def test_each_file_includes_the_next_twice(process: Callable[..., Candidate], write: Write) -> None:
    """Ten levels of ten files are ten thousand million reads."""
    for level in range(12):
        write(f"/data/{level}.conf", f"include '{level + 1}.conf'\n".encode() * 10)
        write(f"/etc/{level}.cnf", f"!include /etc/{level + 1}.cnf\n".encode() * 10)
    write("/data/postgresql.conf", b"include '0.conf'\n")
    write("/etc/my.cnf", b"!include /etc/0.cnf\n")
    candidate = process()
    unknown(of_mysql(candidate), "too many option files")
    unknown(postgres_encryption(candidate), "too many configuration files")


def test_a_hundred_files_of_a_megabyte(process: Callable[..., Candidate], write: Write) -> None:
    for number in range(100):
        write(f"/etc/d/{number}.cnf", b"[mysqld]\n" + b"#" * 4000 + b"\n" * 900_000)
    write("/etc/my.cnf", b"!includedir /etc/d\n")
    unknown(of_mysql(process()), "are too large")


@pytest.mark.parametrize("filler", [b"x", b" ", b"'", b'"', b"''", b"\t\0", b"\xff", b"a = 'b"])
def test_lines_without_an_end(filler: bytes, run: Callable[..., Examined], write: Write) -> None:
    line = filler * (900_000 // len(filler))
    write("/etc/my.cnf", b"[mysqld]\nssl=" + line)
    write("/data/postgresql.conf", b"ssl = " + line)
    unknown(run("mysqld").thread_pool, "characters")
    unknown(run("postgres", pid=200).encryption, "characters")


@pytest.mark.parametrize("filler", [b" ", b"x", b"'", b'"', b"''", b"'\"", b"a ", b". "])
def test_many_lines_of_the_greatest_length(
    filler: bytes, run: Callable[..., Examined], write: Write
) -> None:
    """A backtracking regular expression took a second for each line."""
    line = (b"ssl" + filler * 4000)[:4090] + b"\n"
    write("/etc/my.cnf", b"[mysqld]\n" + line * 250)
    write("/data/postgresql.conf", line * 250)
    for name, pid in (("mysqld", 100), ("postgres", 200)):
        assert run(name, pid=pid).flavour is not None


def test_pipes_and_devices_in_the_place_of_files(
    fake: FakeProc, process: Callable[..., Candidate]
) -> None:
    (fake.host / "etc").mkdir()
    (fake.host / "data").mkdir()
    os.mkfifo(fake.host / "etc" / "my.cnf")
    os.mkfifo(fake.host / "data" / "postgresql.conf")
    candidate = process()
    unknown(of_mysql(candidate), "not a regular file")
    unknown(postgres_encryption(candidate), "not a regular file")


def test_what_is_in_a_file_is_not_shown(process: Callable[..., Candidate], write: Write) -> None:
    """A server's user may name any file as its configuration, and can read qjoule's messages about
    it.
    """
    write("/data/postgresql.conf", f"ssl = '{SECRET}'\n".encode())
    write("/etc/my.cnf", f"[mysqld]\n!include {SECRET}\nssl-cert={SECRET}\n".encode())
    candidate = process(f"--defaults-file={SECRET}")
    for fact in (postgres_encryption(candidate), of_mysql(candidate), of_mysql(candidate)):
        assert "secret" not in fact.source
    write("/data/postgresql.conf", f"include '{SECRET}\x1b'\n".encode() * 300)
    assert "secret" not in postgres_encryption(candidate).source


def test_values_that_are_no_text(process: Callable[..., Candidate], write: Write) -> None:
    write("/data/postgresql.conf", b"ssl = on\0\xff\xfe\n\xf0\x9f = \n\0\0\0 ssl = off\n")
    write("/etc/my.cnf", b"[mysqld\0]\n[mysqld]\nskip-ssl\0=\xff\n\xff\n")
    candidate = process()
    assert postgres_encryption(candidate).value is not None
    assert of_mysql(candidate).value is False


def test_versions_of_any_length(process: Callable[..., Candidate]) -> None:
    assert settings_of(process(), "mysql", "9" * 100_000 + ".1").encryption.value is not None
