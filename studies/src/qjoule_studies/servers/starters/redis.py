# SPDX-License-Identifier: Apache-2.0
"""A Redis of a study's own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from qjoule_studies.servers.accounts import service_account
from qjoule_studies.servers.redis import redis_server
from qjoule_studies.servers.starters import Settings, target, text
from qjoule_studies.workload import Target

OURS = frozenset(
    [
        "aclfile",
        "bind",
        "daemonize",
        "dir",
        "include",
        "pidfile",
        "port",
        "protected-mode",
        "requirepass",
        "supervised",
        "unixsocket",
        "user",
    ]
)


@contextmanager
def _redis(settings: Settings) -> Iterator[Target]:
    """Redis, which writes nothing to disk unless `save` or `appendonly` is set."""
    password = secrets.token_hex(16)
    words = [
        word for name, value in settings.items() for word in (f"--{name}", text(value, "yes", "no"))
    ]
    account = service_account("redis")
    with redis_server(*words, account=account, password=password) as server:
        yield target("redis", server, "", password)


STARTS = {"redis": _redis}
