# SPDX-License-Identifier: Apache-2.0
"""A database server as a child process: re-exported from `qjoule.studies.servers`."""

from __future__ import annotations

from qjoule.studies.servers.process import (
    DatabaseServer,
    free_port,
    free_ports,
    leaks,
    processes_in,
    remove_attach_socket,
    run_quietly,
    running,
    server_directory,
    started,
    with_parent,
)
from qjoule.studies.servers.unavailable import Unavailable

__all__ = [
    "DatabaseServer",
    "Unavailable",
    "free_port",
    "free_ports",
    "leaks",
    "processes_in",
    "remove_attach_socket",
    "run_quietly",
    "running",
    "server_directory",
    "started",
    "with_parent",
]
