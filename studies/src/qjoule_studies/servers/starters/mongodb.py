# SPDX-License-Identifier: Apache-2.0
"""A mongod of a study's own, or what speaks as one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qjoule_studies.servers import mongodb as mongodb_servers
from qjoule_studies.servers.accounts import service_account
from qjoule_studies.servers.fetched import fetched
from qjoule_studies.servers.starters import Settings, options, target
from qjoule_studies.workload import Target

OURS = frozenset(
    [
        "bind-ip",
        "config",
        "dbpath",
        "debug-addr",
        "fork",
        "handler",
        "listen-addr",
        "logpath",
        "pidfilepath",
        "port",
        "sqlite-url",
        "state-dir",
        "unixsocketprefix",
    ]
)


@contextmanager
def _mongodb(settings: Settings) -> Iterator[Target]:
    """The mongod on PATH, else FerretDB as fetched."""
    account, words = service_account("mongodb"), options(settings, "true", "false")
    found = shutil.which("mongod")
    if found:
        with mongodb_servers.mongod_server(Path(found), *words, account=account) as server:
            yield target("mongodb", server)
        return
    program = fetched("ferretdb") / "ferretdb"
    with mongodb_servers.ferretdb_server(program, *words, account=account) as server:
        yield target("mongodb", server)


STARTS = {"mongodb": _mongodb}
