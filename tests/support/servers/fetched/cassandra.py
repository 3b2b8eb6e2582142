# SPDX-License-Identifier: Apache-2.0
"""Cassandra 5.0.9: the jars of its published project and their dependencies."""

from __future__ import annotations

from pathlib import Path

from servers.fetched.maven import jars

HERE = Path(__file__).parent


def installation() -> Path:
    """The folder of its jars, to be used as class path.

    Raises:
        Unavailable: they cannot be fetched.
    """
    return jars("cassandra-5.0.9", HERE / "cassandra.xml", HERE / "cassandra.sha256")
