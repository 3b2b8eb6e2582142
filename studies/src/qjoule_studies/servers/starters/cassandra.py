# SPDX-License-Identifier: Apache-2.0
"""A Cassandra of a study's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from qjoule_studies.servers import cassandra as cassandra_servers
from qjoule_studies.servers.fetched import fetched
from qjoule_studies.servers.starters import Settings, target
from qjoule_studies.workload import Target

OURS = frozenset(
    [
        "cdc-raw-directory",
        "commitlog-directory",
        "data-file-directories",
        "hints-directory",
        "listen-address",
        "native-transport-port",
        "partitioner",
        "rpc-address",
        "saved-caches-directory",
        "seed-provider",
        "ssl-storage-port",
        "storage-port",
    ]
)


@contextmanager
def _cassandra(settings: Settings) -> Iterator[Target]:
    """Cassandra of one node, as fetched."""
    # JSON is YAML: a text cannot end its line, nor become a mapping.
    lines = {name: json.dumps(value) for name, value in settings.items()}
    installed = fetched("cassandra")
    with cassandra_servers.cassandra_server(installed, settings=lines) as server:
        yield target("cassandra", server)


STARTS = {"cassandra": _cassandra}
