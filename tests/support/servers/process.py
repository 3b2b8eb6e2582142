# SPDX-License-Identifier: Apache-2.0
"""A database server as a child process (from `qjoule_studies.servers`), or a skipped test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from qjoule_studies.servers.process import (
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
from qjoule_studies.servers.unavailable import Unavailable

__all__ = [
    "DatabaseServer",
    "Unavailable",
    "free_port",
    "free_ports",
    "leaks",
    "or_skip",
    "processes_in",
    "remove_attach_socket",
    "run_quietly",
    "running",
    "server_directory",
    "started",
    "with_parent",
]


@contextmanager
def or_skip() -> Iterator[None]:
    """Skips the test if what it needs is not on this machine."""
    try:
        yield
    except Unavailable as reason:
        pytest.skip(str(reason))
