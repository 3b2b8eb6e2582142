# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL of a study's own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from qjoule_studies.servers.postgres import postgres_server
from qjoule_studies.servers.starters import Settings, target, text
from qjoule_studies.workload import Target

OURS = frozenset(
    [
        "config-file",
        "data-directory",
        "external-pid-file",
        "hba-file",
        "ident-file",
        "listen-addresses",
        "port",
        "unix-socket-directories",
    ]
)


@contextmanager
def _postgres(settings: Settings) -> Iterator[Target]:
    """PostgreSQL; no commit waits for the disk unless `fsync` is set."""
    password = secrets.token_hex(16)
    words = [f"{name}={text(value, 'on', 'off')}" for name, value in settings.items()]
    # Statistics that only this server would keep are not to be part of what is measured.
    words.insert(0, "shared_preload_libraries=")
    with postgres_server(*words, password=password) as server:
        yield target("postgres", server, "postgres", password)


STARTS = {"postgres": _postgres}
