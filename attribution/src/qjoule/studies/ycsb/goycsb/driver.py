# SPDX-License-Identifier: Apache-2.0
"""The parts of go-ycsb that depend on the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from qjoule.studies.workload import Target

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
