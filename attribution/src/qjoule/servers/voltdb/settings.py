# SPDX-License-Identifier: Apache-2.0
"""How a VoltDB is configured, for tracing."""

from __future__ import annotations

from qjoule.servers.support import Running, Settings
from qjoule.servers.types import Fact
from qjoule.servers.voltdb.find import client_port


def settings(running: Running) -> Settings:
    """Nothing of its configuration changes how it is traced."""
    return Settings(
        Fact(None, "procedures are seen behind it"),
        Fact(False, "a procedure's SQL stays on the threads of its partitions"),
        first_port=client_port(running.candidate.arguments),
    )
