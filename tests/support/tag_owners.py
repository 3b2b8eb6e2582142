# SPDX-License-Identifier: Apache-2.0
"""Ownership checks for tests: made-up connections have no owner in the kernel."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

from qjoule.tags.definitions import Connection
from qjoule.tags.owners import Owner
from qjoule.tags.tagging import TagSource
from qjoule_drivers import tag
from qjoule_drivers.channel import Channel
from tag_changes import ask, new_peer


class Everyone:
    """All connections belong to this process's user."""

    def owner_of(self, connection: Connection) -> Owner | None:
        del connection
        return Owner(os.geteuid(), b"")

    def close(self) -> None:
        pass


def honest(path: Path, source: TagSource) -> None:
    """An application that connects now is accepted."""
    with closing(Channel(str(path))) as channel:
        time_ns = call_in_each(channel, "honest")
        assert ask(source, time_ns) == ["honest"]


def call_in_each(channel: Channel, m: str) -> int:
    with tag(m=m):
        channel.begin(new_peer())
    return time.monotonic_ns()
