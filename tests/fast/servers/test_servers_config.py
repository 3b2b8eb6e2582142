# SPDX-License-Identifier: Apache-2.0
"""Configuration as a server reads it: files, includes, command line, and what cannot be known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qjoule.servers.access import FILE_BYTES_MAX, Unreadable
from qjoule.servers.candidate import Candidate
from qjoule.servers.in_root import list_directory, read_file
from qjoule.servers.postgres.settings import encryption as postgres_encryption
from qjoule.servers.types import Fact
from servers.examined import candidate, settings_of
from servers.fake_proc import FakeProc

OLD, NEW = "10.11.19", "11.4.2"


class Machine:
    """A root directory with files, and a process in it."""

    def __init__(self, base: Path) -> None:
        self.fake = FakeProc(base)
        self.root = self.fake.host

    def write(self, path: str, text: str) -> None:
        where = self.root / path.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text)

    def process(
        self, *arguments: str, cwd: str = "/data", environment: tuple[str, ...] = ()
    ) -> Candidate:
        entry = self.fake.add(
            100, "/bin/true", arguments=arguments, cwd=cwd, environment=environment
        )
        return candidate(entry)

    def mysql(
        self,
        *arguments: str,
        flavour: str = "mariadb",
        version: str = OLD,
        environment: tuple[str, ...] = (),
    ) -> tuple[Fact, Fact]:
        process = self.process(*arguments, environment=environment)
        found = settings_of(process, flavour, version)
        return found.encryption, found.thread_pool


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("flavour", "version", "arguments", "encryption"),
    [
        ("mariadb", OLD, (), False),
        ("mariadb", NEW, (), True),
        ("mariadb", "", (), True),  # version unknown: the cautious answer
        ("mariadb", NEW, ("--skip-ssl",), False),
        ("mariadb", NEW, ("--ssl=0",), False),
        ("mariadb", NEW, ("--disable_ssl",), False),
        ("mariadb", OLD, ("--ssl_cert=/c.pem",), True),
        ("mariadb", OLD, ("--loose-ssl-cert=/c.pem",), True),
        ("mariadb", OLD, ("--ssl-ce=/c.pem",), None),  # abbreviated
        ("mysql", "8.0.36", (), True),
        ("mysql", "9.1.0", ("--tls-version=",), False),
        ("mysql", "9.1.0", ("--tls-version=''",), False),
        ("mysql", "9.1.0", ("--tls-version=TLSv1.3",), True),
        ("mysql", "8.0.15", ("--ssl=0", "--ssl=1"), True),  # the last one wins
        ("mysql", "8.0.15", ("--ssl=OFF",), False),
        ("mysql", "5.6.51", (), False),
        ("mysql", "5.6.51", ("--ssl-key=/k.pem",), True),
    ],
)
def test_mysql_encryption(
    machine: Machine,
    flavour: str,
    version: str,
    arguments: tuple[str, ...],
    encryption: bool | None,
) -> None:
    fact, _ = machine.mysql("--no-defaults", *arguments, flavour=flavour, version=version)
    assert fact.value is encryption
    assert fact.source


@pytest.mark.parametrize(
    ("arguments", "pool"),
    [
        ((), False),
        (("--thread-handling=pool-of-threads",), True),
        (("--thread_handling=Pool-of-Threads",), True),
        (("--thread-handling=one-thread-per-connection",), False),
        (
            ("--thread-handling=pool-of-threads", "--thread-handling=one-thread-per-connection"),
            False,
        ),
        (("--plugin-load-add=thread_pool.so",), True),
        (("--thread-h=pool-of-threads",), None),
    ],
)
def test_thread_pool(machine: Machine, arguments: tuple[str, ...], pool: bool | None) -> None:
    assert machine.mysql("--no-defaults", *arguments)[1].value is pool


def test_option_files_groups_includes_and_comments(machine: Machine) -> None:
    machine.write("/etc/mysql/mariadb.cnf", "[client]\nssl-cert=/client.pem\n!includedir /etc/d/\n")
    (machine.root / "etc/alternatives").mkdir()
    (machine.root / "etc/alternatives/my.cnf").symlink_to("/etc/mysql/mariadb.cnf")
    (machine.root / "etc/mysql/my.cnf").symlink_to("/etc/alternatives/my.cnf")
    machine.write(
        "/etc/d/10.cnf", "# ssl-cert=/no.pem\n[mariadb-10.11] ; ours\nssl_cert = /c.pem # x\n"
    )
    machine.write(
        "/etc/d/20.cnf", "[mysqld]\nthread-handling='pool-of-threads'\n[mysqldump]\nssl=0\n"
    )
    machine.write("/etc/d/30.txt", "[mysqld]\nthread-handling=one-thread-per-connection\n")
    encryption, pool = machine.mysql()
    assert encryption == Fact(True, "ssl-cert: /etc/d/10.cnf")
    assert pool == Fact(True, "thread-handling=pool-of-threads: /etc/d/20.cnf")


@pytest.mark.parametrize(
    ("arguments", "environment", "pool"),
    [
        ((), (), False),
        (("--defaults-file=/opt/x.cnf",), (), True),
        (("--defaults-extra-file=/opt/x.cnf",), (), True),
        (("--defaults-group-suffix=2",), ("HOME=/home/db",), True),
        ((), ("HOME=/home/db",), False),
        ((), ("HOME=/home/db", "MYSQL_GROUP_SUFFIX=2"), True),
        ((), ("MYSQL_HOME=/opt/m",), True),
        (("--no-defaults",), ("MYSQL_HOME=/opt/m",), False),
        (("--defaults-file=x.cnf",), (), None),  # relative to an unknown directory
    ],
)
def test_which_files_are_read(
    machine: Machine, arguments: tuple[str, ...], environment: tuple[str, ...], pool: bool | None
) -> None:
    machine.write("/opt/x.cnf", "[mysqld]\nthread-handling=pool-of-threads\n")
    machine.write("/opt/m/my.cnf", "[mysqld]\nthread-handling=pool-of-threads\n")
    machine.write("/home/db/.my.cnf", "[mysqld2]\nthread-handling=pool-of-threads\n")
    assert machine.mysql(*arguments, environment=environment)[1].value is pool


def test_the_command_line_wins(machine: Machine) -> None:
    machine.write("/etc/my.cnf", "[mysqld]\nthread-handling=pool-of-threads\n")
    _, pool = machine.mysql("--thread-handling=one-thread-per-connection")
    assert pool.value is False


def test_files_that_include_themselves(machine: Machine) -> None:
    machine.write("/etc/my.cnf", "!include /etc/my.cnf\n[mysqld]\nskip-ssl\n")
    encryption, pool = machine.mysql()
    assert (encryption.value, pool.value) == (None, None)
    assert "too many option files" in encryption.source


def test_a_pipe_in_place_of_a_file_does_not_stop_us(machine: Machine) -> None:
    (machine.root / "etc").mkdir()
    os.mkfifo(machine.root / "etc/my.cnf")
    encryption, _ = machine.mysql()
    assert encryption == Fact(None, "/etc/my.cnf is not a regular file")


def test_a_container_cannot_lead_us_to_the_hosts_files(machine: Machine, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("[mysqld]\nthread-handling=pool-of-threads\n")
    (machine.root / "etc").mkdir()
    (machine.root / "etc/my.cnf").symlink_to(secret)
    assert read_file(machine.root, "/etc/my.cnf") is None
    assert read_file(machine.root, "/../../secret") is None
    assert machine.mysql()[1].value is False


def test_bounds_of_reading(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (FILE_BYTES_MAX + 1))
    (tmp_path / "bytes").write_bytes(b"\xff\x00\x1b[31m")
    with pytest.raises(Unreadable, match="larger than 1 MiB"):
        read_file(tmp_path, "/big")
    with pytest.raises(Unreadable, match="NUL"):
        read_file(tmp_path, "/a\0b")
    with pytest.raises(Unreadable):
        read_file(tmp_path / "nothing", "/x")
    assert read_file(tmp_path, "/bytes") is not None
    assert read_file(tmp_path, "/big/under") is None
    assert list_directory(tmp_path, "/") == ["big", "bytes"]
    assert list_directory(tmp_path, "/none") == []


@pytest.mark.parametrize(
    ("conf", "auto", "arguments", "value"),
    [
        ("port = 1\n", "", (), False),
        ("ssl = on\n", "", (), True),
        ("#ssl = on\nssl off # on\n", "", (), False),
        ("SSL = 'yes'\n", "", (), True),
        ("ssl=tr\n", "", (), True),
        ("ssl = 1\n", "", (), True),
        ("ssl = on\nssl = off\n", "", (), False),
        ("ssl_cert_file = 'on'\n", "", (), False),
        ("port=1\ninclude_dir 'conf.d'\n", "", (), True),
        ("ssl=off\ninclude 'more.conf'\n", "", (), True),
        ("include_if_exists 'none.conf'\nport=1\n", "", (), False),
        ("ssl = off\n", "ssl = 'on'\n", (), True),
        ("ssl = on\n", "ssl = 'off'\n", (), False),
        ("ssl = off\n", "", ("-c", "ssl=on"), True),
        ("ssl = on\n", "", ("-cssl=off",), False),
        ("ssl = on\n", "", ("--ssl=off",), False),
        ("ssl = off\n", "", ("-l",), True),
        ("ssl = off\n", "", ("-c", "config_file=/etc/pg/main.conf"), True),
        ("ssl = off\n", "", ("-D", "/etc/pg2"), True),
        ("", "", (), None),
        ("include 'postgresql.conf'\n", "", (), None),
    ],
)
def test_postgres(
    machine: Machine, conf: str, auto: str, arguments: tuple[str, ...], value: bool | None
) -> None:
    machine.write("/data/postgresql.conf", conf)
    machine.write("/data/postgresql.auto.conf", auto)
    machine.write("/data/conf.d/1.conf", "ssl = on\n")
    machine.write("/data/conf.d/.2.conf", "ssl = off\n")
    machine.write("/data/more.conf", "ssl = on\n")
    machine.write("/etc/pg/main.conf", "ssl = on\n")
    machine.write("/etc/pg2/postgresql.conf", "ssl = on\n")
    fact = postgres_encryption(machine.process(*arguments))
    assert fact.value is value
    assert fact.source


def test_postgres_whose_directory_cannot_be_read(machine: Machine) -> None:
    process = machine.process()
    (machine.fake.tree / "100" / "cwd").unlink()
    assert postgres_encryption(process).value is None
