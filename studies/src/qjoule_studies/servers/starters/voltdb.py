# SPDX-License-Identifier: Apache-2.0
"""A VoltDB of a study's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qjoule.api import UsageError
from qjoule_studies.servers import voltdb as voltdb_servers
from qjoule_studies.servers.accounts import service_account
from qjoule_studies.servers.fetched import fetched
from qjoule_studies.servers.starters import Settings, target
from qjoule_studies.workload import Target

OURS: frozenset[str] = frozenset()


@contextmanager
def _voltdb(settings: Settings) -> Iterator[Target]:
    """VoltDB of one node, as fetched."""
    if settings:
        raise UsageError(f"voltdb has no settings here: take {next(iter(settings))} out")
    with voltdb_servers.voltdb_server(fetched("voltdb"), account=service_account()) as server:
        yield target("voltdb", server)


STARTS = {"voltdb": _voltdb}
