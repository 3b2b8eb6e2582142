# SPDX-License-Identifier: Apache-2.0
"""VoltDB 10.0 Community: its published jar and the other files it needs."""

from __future__ import annotations

from pathlib import Path

from servers.fetched.maven import jars

HERE = Path(__file__).parent


def installation() -> Path:
    """The folder of its jars, to be used as class path.

    Raises:
        Unavailable: they cannot be fetched.
    """
    return jars("voltdb-10.0", HERE / "voltdb.xml", HERE / "voltdb.sha256")
