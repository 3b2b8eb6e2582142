# SPDX-License-Identifier: Apache-2.0
"""Cassandra 5.0 on loopback, from its published jars."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from qjoule_studies.servers import cassandra
from qjoule_studies.servers.cassandra import Client
from servers.fetched import FILES, maven
from servers.process import DatabaseServer

__all__ = ["Client", "cassandra_server"]


def installation() -> Path:
    """The folder of its jars, to be used as class path. Raises Unavailable."""
    return maven.jars("cassandra-5.0.9", FILES / "cassandra.xml", FILES / "cassandra.sha256")


def cassandra_server(
    *jvm_options: str, settings: Mapping[str, str] | None = None
) -> AbstractContextManager[DatabaseServer]:
    """A Cassandra with one node; see the function of the package. Raises Unavailable."""
    return cassandra.cassandra_server(installation(), *jvm_options, settings=settings)
