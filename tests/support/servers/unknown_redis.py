# SPDX-License-Identifier: Apache-2.0
"""A Redis that cannot be recognised: for qjoule a server with an unknown protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from servers.process import DatabaseServer, server_directory
from servers.redis import installed_redis, redis_in

NAME = "kvd"
_BANNER, _OTHER = b"Redis version=%s, bits=%d", b"Kvdis version=%s, bits=%d"


@contextmanager
def unknown_redis() -> Iterator[DatabaseServer]:
    """redis-server under another name, without the strings by which it is recognised."""
    installed = installed_redis()
    with server_directory() as directory:
        program = directory / NAME
        program.write_bytes(installed.read_bytes().replace(_BANNER, _OTHER))
        program.chmod(0o755)
        with redis_in(directory, program, name=NAME) as started:
            yield started
