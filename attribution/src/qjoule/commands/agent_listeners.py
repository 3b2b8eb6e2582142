# SPDX-License-Identifier: Apache-2.0
"""The agent's listening processes, for scrapers and for a browser on this machine.

They start before the engine opens or imports anything else.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from qjoule.agent.config import Config
from qjoule.children import FIRST, fork_helper
from qjoule.errors import QjouleError
from qjoule.metrics.exposition import Family, Sample
from qjoule.metrics.http import Bounds, listen_on
from qjoule.metrics.messages import Origins, UserOf
from qjoule.metrics.server import LivePage, MetricsServer, ShownBytes, warm_up
from qjoule.metrics.shared import Board, SnapshotBoard
from qjoule.root_part.reader_filter import confine_listener
from qjoule.tags.connections import SocketOwners
from qjoule.tags.definitions import Connection


@dataclass
class Listeners:
    """Data shared with the listening processes, and their pids by purpose."""

    board: Board | None = None
    snapshots: SnapshotBoard | None = None  #: for the live page
    profiles: SnapshotBoard | None = None  #: of the last minute, if stacks are sampled
    samples: SnapshotBoard | None = None  #: sampled queries, if they are to be shown
    processes: dict[str, int] = field(default_factory=dict)


def start_listeners(config: Config) -> Listeners:
    """Starts the processes. Raises `QjouleError` if the address cannot be bound."""
    listeners = Listeners()
    if config.metrics.enabled:
        listeners.board = board = Board()
        live = None
        if config.metrics.page:
            listeners.snapshots = SnapshotBoard()
            live = LivePage(listeners.snapshots)
        paths: dict[str, ShownBytes] = {}
        if config.stacks.hertz:
            listeners.profiles = SnapshotBoard()
            paths["/profile"] = ShownBytes(listeners.profiles, "application/octet-stream")
        if config.metrics.samples:
            listeners.samples = SnapshotBoard()
            paths["/samples"] = ShownBytes(listeners.samples, "application/json")
        rate = config.metrics.requests_per_second
        bounds = Bounds(config.metrics.connections, rate)
        with _bind_metrics_socket(config) as listening:
            descriptors = (listening.fileno(),)
            life = partial(_serve, board, bounds, live, paths)
            listeners.processes["metrics"] = fork_helper(life, descriptors)
    return listeners


def _bind_metrics_socket(config: Config) -> socket.socket:
    try:
        return listen_on(*config.metrics.address)
    except OSError as error:
        address = config.metrics.listen
        raise QjouleError(f"metrics.listen: {address}: {error.strerror}") from None


def user_of_sockets() -> UserOf:
    """Opens a socket, and returns a function that asks the kernel for a connection's user."""
    owners = SocketOwners()

    def user_of(client: str, server: str) -> int | None:
        owner = owners.owner_of(Connection("http", client, server))
        return None if owner is None else owner.uid

    return user_of


def _serve(
    board: Board, bounds: Bounds, live: LivePage | None, paths: Mapping[str, ShownBytes]
) -> None:
    """The entire life of the listening process."""
    origins = Origins(user_of_sockets())
    listening = socket.socket(fileno=FIRST)
    server = MetricsServer(listening, board, bounds, live, origins, shown=paths)
    board.read()
    warm_up([Family("qjoule_build", "info", "", samples=[Sample((("version", ""),), "1")])])
    confine_listener()
    server.serve()
