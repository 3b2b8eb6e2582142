# SPDX-License-Identifier: Apache-2.0
"""The parts of go-ycsb that depend on the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from qjoule_studies.workload import Target

TABLE = "qjoule_ycsb"  #: ours by its name: it is removed before records are loaded
DATABASE = "ycsb"  #: unless the target names one; go-ycsb knows no other with MongoDB


@dataclass(frozen=True)
class Driver:
    """A driver of go-ycsb's, and what it lacks: an empty place for the records.

    `empty` and `loaded` raise one of `errors`, or OSError.
    """

    name: str  #: as its command line has it
    properties: Callable[[Target, int], Mapping[str, object]]  #: by target and number of threads
    empty: Callable[[Target], None]  #: makes the database; removes the table, if there is one
    errors: tuple[type[Exception], ...]
    loaded: Callable[[Target], None] | None = None  #: what the server does once records are there
    scans: bool = True  #: False: it answers "scan is not supported"
    databases: frozenset[str] = frozenset()  #: the only ones that it can use; empty: any
    other_database: str = ""  #: why it cannot use another one


def sql_driver(
    name: str,
    connect: Callable[[Target, str], Any],
    error: type[Exception],
    analyze: str,
) -> Driver:
    """A driver of SQL, whose properties begin with its name.

    `connect`: to the target, in the given database if it names none. `analyze`: the statement,
    before the table, that lets the server plan for the records.
    """

    def properties(target: Target, _threads: int) -> Mapping[str, object]:
        return {
            f"{name}.host": target.host,
            f"{name}.port": target.port,
            f"{name}.user": target.user,
            f"{name}.password": target.password,
            f"{name}.db": target.database or DATABASE,
        }

    def execute(target: Target, statement: str) -> None:
        with closing(connect(target, DATABASE)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    return Driver(
        name,
        properties,
        lambda target: execute(target, f"DROP TABLE IF EXISTS {TABLE}"),
        (error,),
        loaded=lambda target: execute(target, f"{analyze} {TABLE}"),
    )
