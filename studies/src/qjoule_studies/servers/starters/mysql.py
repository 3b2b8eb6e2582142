# SPDX-License-Identifier: Apache-2.0
"""A MariaDB or MySQL of a study's own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from qjoule_studies.servers import mysql as mysql_servers
from qjoule_studies.servers.accounts import service_account
from qjoule_studies.servers.fetched import fetched
from qjoule_studies.servers.starters import Settings, options, target
from qjoule_studies.workload import Target

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
    words = options(settings, "ON", "OFF")
    with mysql_servers.mariadb_server(*words, account=account, password=password) as server:
        yield target("mariadb", server, mysql_servers.USER, password)


@contextmanager
def _mysql(settings: Settings) -> Iterator[Target]:
    """MySQL as fetched; as MariaDB, it waits for the disk at commits only if a setting says so."""
    password, account = secrets.token_hex(16), service_account("mysql")
    base = fetched("mysql")
    words = ["--skip-log-bin", "--innodb-flush-log-at-trx-commit=0"]
    words += options(settings, "ON", "OFF")
    with mysql_servers.mysql_server(base, *words, account=account, password=password) as server:
        yield target("mysql", server, mysql_servers.USER, password)


STARTS = {"mariadb": _mariadb, "mysql": _mysql}
