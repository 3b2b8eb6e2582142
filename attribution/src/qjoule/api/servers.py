# SPDX-License-Identifier: Apache-2.0
"""Database servers: those that run here, and what the registry knows of each kind."""

from qjoule.servers import registry
from qjoule.servers.discovery import find_servers
from qjoule.servers.plan import PlannedServer
from qjoule.servers.registry import flavours
from qjoule.servers.resolution import Probe
from qjoule.servers.types import Server
from qjoule.session.targets import plan_tracing

__all__ = [
    "PlannedServer",
    "Probe",
    "Server",
    "find_servers",
    "flavours",
    "plan_tracing",
    "registry",
]
