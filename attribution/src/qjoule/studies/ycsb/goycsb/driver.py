# SPDX-License-Identifier: Apache-2.0
"""The parts of go-ycsb that depend on the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from qjoule.studies.workload import Target


@dataclass(frozen=True)
class Driver:
    """A driver of go-ycsb's."""

    name: str  #: as its command line has it
    properties: Callable[[Target, int], Mapping[str, object]]  #: by target and number of threads
    scans: bool = True  #: False: it answers "scan is not supported"
    databases: frozenset[str] = frozenset()  #: the only ones that it can use; empty: any
    other_database: str = ""  #: why it cannot use another one
