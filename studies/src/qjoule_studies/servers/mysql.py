# SPDX-License-Identifier: Apache-2.0
"""MariaDB from the distribution, and MySQL where it has been fetched."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import CLIENT

from qjoule_studies.servers.prerequisites import (
    Account,
    Unavailable,
    fetched,
    own_account,
    service_account,
)
from qjoule_studies.servers.process import (
    DatabaseServer,
    Settings,
    free_port,
    options,
    readable,
    run_quietly,
    running,
    server_directory,
    target,
    with_parent,
)
from qjoule_studies.workload import Target

USER = "qjoule"  #: who may do everything, where there is a password


@contextmanager
def mariadb_server(
    *options: str,
    account: Account | None = None,
    password: str = "",
    programs: Path | None = None,
    below: Path | None = None,
) -> Iterator[DatabaseServer]:
    """A MariaDB with these further options.

    Args:
        account: whom it runs as; ourselves unless given.
        password: of the user `qjoule`, who is the only one then; without one, whoever reaches the
            server is let in as root.
        programs: the directory of its programs; those of the system unless given.
        below: where its directory is made.

    Raises:
        Unavailable: it is not installed.
    """
    server, install = (_executable(name, programs) for name in ("mariadbd", "mariadb-install-db"))
    account = account or own_account()
    how = "socket" if password else "normal"
    setup = [install, "--no-defaults", *_as_root(account), "--skip-test-db"]
    setup += [f"--auth-root-authentication-method={how}"]
    own = ["--innodb-flush-log-at-trx-commit=0", *options]
    program = [server, "--no-defaults", *_as_root(account)]
    with (
        server_directory(below) as directory,
        _served(directory, program, setup, own, account=account, password=password) as started,
    ):
        yield started


@contextmanager
def mysql_server(
    base: Path,
    *options: str,
    account: Account | None = None,
    password: str = "",
    below: Path | None = None,
) -> Iterator[DatabaseServer]:
    """A MySQL, unpacked in `base`, with these further options; the others as `mariadb_server`.

    Raises:
        Unavailable: the system lacks a library that it needs.
    """
    _check_libraries(base)
    account = account or own_account()
    own = ["--mysqlx=OFF", "--secure-file-priv=", *options]
    if password:  # with MySQL's own plugin, a password's first login would need TLS
        own.insert(0, "--default-authentication-plugin=mysql_native_password")
    with server_directory(below) as directory:
        if account.identity:
            base = readable(base, directory)
        program = [str(base / "bin" / "mysqld"), "--no-defaults", f"--basedir={base}"]
        program += _as_root(account)
        setup = [*program, "--initialize-insecure"]
        with _served(directory, program, setup, own, account=account, password=password) as started:
            yield started


@contextmanager
def _served(
    directory: Path,
    program: Sequence[str],
    setup: Sequence[str],
    options: Sequence[str],
    *,
    account: Account,
    password: str,
) -> Iterator[DatabaseServer]:
    account.own(directory)
    data = f"--datadir={directory / 'data'}"
    run_quietly([*with_parent(*account.identity), *setup, data], directory)
    port, socket = free_port(), directory / "s"
    argv = [
        *program,
        data,
        "--bind-address=127.0.0.1",
        f"--port={port}",
        f"--socket={socket}",
        f"--tmpdir={directory}",
        f"--pid-file={directory / 'pid'}",
        *_users(directory, account, password),
        *options,
    ]
    connect = partial(_connect_as_user, password) if password else connect_mysql
    name = "mariadb" if Path(program[0]).name == "mariadbd" else "mysql"
    server = DatabaseServer(name, directory, argv, port, socket, connect, account.identity)
    with running(server) as started:
        yield started


def _users(directory: Path, account: Account, password: str) -> list[str]:
    """The option that makes our user the only one that a password, or none, lets in."""
    if not password:
        return []
    file = directory / "users.sql"
    account.write(
        file,
        f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{password}';\n"
        f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{password}';\n",
    )
    return [f"--init-file={file}"]


def connect_mysql(server: DatabaseServer, tcp: bool, arguments: dict[str, Any]) -> Any:
    """A pymysql connection as root, in autocommit."""
    where: dict[str, Any] = (
        {"host": "127.0.0.1", "port": server.port} if tcp else {"unix_socket": str(server.socket)}
    )
    defaults = {"user": "root", "autocommit": True, "connect_timeout": 10}
    return pymysql.connect(**{**where, **defaults, **arguments})


def _connect_as_user(
    password: str, server: DatabaseServer, tcp: bool, arguments: dict[str, Any]
) -> Any:
    return connect_mysql(server, tcp, {"user": USER, "password": password, **arguments})


def _as_root(account: Account) -> list[str]:
    """Both refuse to run as root unless told to."""
    return ["--user=root"] if os.geteuid() == 0 and account.uid == 0 else []


def _check_libraries(base: Path) -> None:
    linked = subprocess.run(
        ["ldd", str(base / "bin" / "mysqld")], capture_output=True, text=True, check=False
    ).stdout
    lacking = [line.split()[0] for line in linked.splitlines() if "not found" in line]
    if lacking:
        raise Unavailable(f"MySQL lacks {', '.join(lacking)} (packages libaio1, libnuma1)")


def _executable(name: str, programs: Path | None) -> str:
    where = str(programs or f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    path = shutil.which(name, path=where)
    if path is None:
        raise Unavailable(f"{name} is not installed (package mariadb-server-core)")
    return str(Path(path))


OURS = frozenset(
    [
        "basedir",
        "bind-address",
        "datadir",
        "defaults-file",
        "init-file",
        "pid-file",
        "port",
        "skip-grant-tables",
        "skip-networking",
        "socket",
        "tmpdir",
        "user",
    ]
)


@contextmanager
def _mariadb(settings: Settings) -> Iterator[Target]:
    """MariaDB; its user `qjoule` may do everything."""
    password, account = secrets.token_hex(16), service_account("mysql")
    arguments = options(settings, "ON", "OFF")
    with mariadb_server(*arguments, account=account, password=password) as server:
        yield target("mariadb", server, USER, password)


@contextmanager
def _mysql(settings: Settings) -> Iterator[Target]:
    """MySQL as fetched. Like MariaDB, it waits for the disk at commits only with a setting."""
    password, account = secrets.token_hex(16), service_account("mysql")
    base = fetched("mysql")
    arguments = ["--skip-log-bin", "--innodb-flush-log-at-trx-commit=0"]
    arguments += options(settings, "ON", "OFF")
    with mysql_server(base, *arguments, account=account, password=password) as server:
        yield target("mysql", server, USER, password)


STARTS = {"mariadb": _mariadb, "mysql": _mysql}


CONNECT_S = 10


def connect_target(target: Target, own: str) -> pymysql.Connection[Any]:
    """In autocommit, in the target's database or in `own`. Raises pymysql.Error."""
    connection = pymysql.connect(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=CONNECT_S,
        client_flag=CLIENT.FOUND_ROWS,  # an update with the same value has found its row
    )
    name = (target.database or own).replace("`", "``")
    with connection.cursor() as cursor:
        if not target.database:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4")
        cursor.execute(f"USE `{name}`")
    return connection
