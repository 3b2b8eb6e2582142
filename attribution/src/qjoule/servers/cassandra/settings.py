# SPDX-License-Identifier: Apache-2.0
"""How a Cassandra is configured, for tracing."""

from __future__ import annotations

from qjoule.servers.cassandra.find import configuration
from qjoule.servers.support import Running, Settings
from qjoule.servers.types import Fact

PORT = "port"


def settings(running: Running) -> Settings:
    """Reads the settings from its cassandra.yaml."""
    found = configuration(running.candidate)
    return Settings(
        found.encryption,
        Fact(True, "its stages have threads of their own"),
        first_port=found.port,
        facts={PORT: found.port},
    )
