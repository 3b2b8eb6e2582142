# SPDX-License-Identifier: Apache-2.0
"""The agent's process that listens, for scrapers and for a browser on this machine.

It is started before the engine opens or imports anything else.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from qjoule.agent.config import Config
from qjoule.children import FIRST, fork_helper
from qjoule.errors import QjouleError
from qjoule.metrics.exposition import Family, Sample
from qjoule.metrics.http import Bounds, listen_on
from qjoule.metrics.messages import Origins, UserOf
from qjoule.metrics.server import LivePage, MetricsServer, warm_up
from qjoule.metrics.shared import Board, SnapshotBoard
from qjoule.root_part.reader_filter import confine_listener
from qjoule.tags.connections import SocketOwners
from qjoule.tags.definitions import Connection


@dataclass
class Listeners:
    """What they show, and their pids by what they do."""

    board: Board | None = None
    snapshots: SnapshotBoard | None = None  #: for the live page
    processes: dict[str, int] = field(default_factory=dict)


def start_listeners(config: Config) -> Listeners:
    """Raises `QjouleError` if it cannot listen."""
    found = Listeners()
    if config.metrics.enabled:
        found.board = board = Board()
        live = None
        if config.metrics.page:
            found.snapshots = SnapshotBoard()
            live = LivePage(found.snapshots)
        rate = config.metrics.requests_per_second
        bounds = Bounds(config.metrics.connections, rate)
        with _listening(config) as listening:
            kept = (listening.fileno(),)
            found.processes["metrics"] = fork_helper(lambda: _serve(board, bounds, live), kept)
    return found


def _listening(config: Config) -> socket.socket:
    try:
        return listen_on(*config.metrics.address)
    except OSError as error:
        words = config.metrics.listen
        raise QjouleError(f"metrics.listen: {words}: {error.strerror}") from None


def user_of_sockets() -> UserOf:
    """Asks the kernel, through a socket that is opened now."""
    owners = SocketOwners()

    def user_of(client: str, server: str) -> int | None:
        owner = owners.owner_of(Connection("http", client, server))
        return None if owner is None else owner.uid

    return user_of


def _serve(board: Board, bounds: Bounds, live: LivePage | None) -> None:
    """The whole life of the process."""
    origins = Origins(user_of_sockets())
    server = MetricsServer(socket.socket(fileno=FIRST), board, bounds, live, origins)
    board.read()
    warm_up([Family("qjoule_build", "info", "", samples=[Sample((("version", ""),), "1")])])
    confine_listener()
    server.serve()
