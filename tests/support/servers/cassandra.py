# SPDX-License-Identifier: Apache-2.0
"""Cassandra 5.0 on loopback, from its published jars (`servers.fetched.cassandra`)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from qjoule.studies.servers import cassandra
from qjoule.studies.servers.cassandra import Client
from servers.fetched import cassandra as fetched
from servers.process import DatabaseServer

__all__ = ["Client", "cassandra_server"]


def cassandra_server(
    *jvm_options: str, settings: Mapping[str, str] | None = None
) -> AbstractContextManager[DatabaseServer]:
    """A Cassandra with one node, fetched on first use; see the function of the package.

    Raises:
        Unavailable: no Java, or its jars cannot be fetched.
    """
    return cassandra.cassandra_server(fetched.installation(), *jvm_options, settings=settings)
