# SPDX-License-Identifier: Apache-2.0
"""Configuration as MySQL and PostgreSQL read it: files, includes, command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.servers.candidate import Candidate
from qjoule.servers.postgres.support import encryption as postgres_encryption
from qjoule.servers.types import Fact
from servers.fake_proc import FakeProc, candidate, settings_of

OLD, NEW = "10.11.19", "11.4.2"
POOL = "thread-handling=pool-of-threads\n"


class Machine(FakeProc):
    """A root directory with files, and a process in it."""

    def write(self, path: str, text: str) -> None:
        file = self.host / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def process(self, *arguments: str, environment: tuple[str, ...] = ()) -> Candidate:
        entry = self.add(
            100, "/bin/true", arguments=arguments, cwd="/data", environment=environment
        )
        return candidate(entry)

    def mysql(
        self,
        *arguments: str,
        flavour: str = "mariadb",
        version: str = OLD,
        environment: tuple[str, ...] = (),
    ) -> tuple[Fact, Fact]:
        """Encryption and thread pool."""
        process = self.process(*arguments, environment=environment)
        settings = settings_of(process, flavour, version)
        return settings.encryption, settings.thread_pool


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
        ("mariadb", OLD, ("--ssl_cert=/c.pem",), True),
        ("mariadb", OLD, ("--ssl-ce=/c.pem",), None),  # abbreviated
        ("mysql", "8.0.36", (), True),
        ("mysql", "9.1.0", ("--tls-version=",), False),
        ("mysql", "8.0.15", ("--ssl=0", "--ssl=1"), True),  # the last one wins
        ("mysql", "5.6.51", (), False),
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
        (("--plugin-load-add=thread_pool.so",), True),
        (("--thread-h=pool-of-threads",), None),
    ],
)
def test_thread_pool(machine: Machine, arguments: tuple[str, ...], pool: bool | None) -> None:
    assert machine.mysql("--no-defaults", *arguments)[1].value is pool


@pytest.mark.parametrize(
    ("arguments", "environment", "pool"),
    [
        ((), (), False),
        (("--defaults-file=/opt/x.cnf",), (), True),
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
    machine.write("/opt/x.cnf", f"[mysqld]\n{POOL}")
    machine.write("/opt/m/my.cnf", f"[mysqld]\n{POOL}")
    machine.write("/home/db/.my.cnf", f"[mysqld2]\n{POOL}")
    assert machine.mysql(*arguments, environment=environment)[1].value is pool


def test_option_files_have_groups_includes_and_comments(machine: Machine) -> None:
    machine.write("/etc/mysql/mariadb.cnf", "[client]\nssl-cert=/client.pem\n!includedir /etc/d/\n")
    (machine.host / "etc/mysql/my.cnf").symlink_to("/etc/mysql/mariadb.cnf")
    machine.write(
        "/etc/d/10.cnf", "# ssl-cert=/no.pem\n[mariadb-10.11] ; ours\nssl_cert = /c.pem # x\n"
    )
    machine.write(
        "/etc/d/20.cnf", "[mysqld]\nthread-handling='pool-of-threads'\n[mysqldump]\nssl=0\n"
    )
    machine.write("/etc/d/30.txt", "[mysqld]\nthread-handling=one-thread-per-connection\n")
    assert machine.mysql() == (
        Fact(True, "ssl-cert: /etc/d/10.cnf"),
        Fact(True, "thread-handling=pool-of-threads: /etc/d/20.cnf"),
    )


@pytest.mark.parametrize(
    ("conf", "auto", "arguments", "value"),
    [
        ("port = 1\n", "", (), False),
        ("#ssl = on\nssl off # on\n", "", (), False),
        ("SSL = 'yes'\n", "", (), True),
        ("port=1\ninclude_dir 'conf.d'\n", "", (), True),
        ("ssl=off\ninclude 'more.conf'\n", "", (), True),
        ("ssl = off\n", "ssl = 'on'\n", (), True),
        ("ssl = off\n", "", ("-c", "ssl=on"), True),
        ("ssl = off\n", "", ("-l",), True),
        ("ssl = off\n", "", ("-c", "config_file=/etc/pg/main.conf"), True),
        ("", "", (), None),
    ],
)
def test_postgres_encryption(
    machine: Machine, conf: str, auto: str, arguments: tuple[str, ...], value: bool | None
) -> None:
    machine.write("/data/postgresql.conf", conf)
    machine.write("/data/postgresql.auto.conf", auto)
    machine.write("/data/conf.d/.2.conf", "ssl = off\n")
    for path in ("/data/conf.d/1.conf", "/data/more.conf", "/etc/pg/main.conf"):
        machine.write(path, "ssl = on\n")
    fact = postgres_encryption(machine.process(*arguments))
    assert fact.value is value
    assert fact.source
