# SPDX-License-Identifier: Apache-2.0
"""The agent's processes that listen: one for metrics, one for other desks.

They are started before the engine opens or imports anything else.
"""

from __future__ import annotations

import os
import select
import socket
from dataclasses import dataclass, field
from pathlib import Path

from qjoule.agent.config import Config, address
from qjoule.errors import QjouleError, UsageError
from qjoule.metrics.board import Board
from qjoule.metrics.families import Family, Sample
from qjoule.metrics.http import Bounds, listen_on
from qjoule.metrics.server import MetricsServer, warm_up
from qjoule.remote import server as remote
from qjoule.remote.access import read_tokens, scopes_of
from qjoule.remote.audit import Audit
from qjoule.remote.page import page
from qjoule.remote.server import Access, RemoteServer, SnapshotBoard
from qjoule.remote.tls import read_secret, server_context
from qjoule.root_part.reader_filter import confine_listener
from qjoule.session.helper import FIRST, fork_helper

_READY, _READY_S, _MAX_WORDS = b"ready", 20.0, 4000
_STDERR = 2


@dataclass
class Listeners:
    """What they show, and their pids by what they do."""

    board: Board | None = None
    remote: SnapshotBoard | None = None
    processes: dict[str, int] = field(default_factory=dict)


def start_listeners(config: Config) -> Listeners:
    """Raises `QjouleError` if one cannot listen, or has no use of its files."""
    found = Listeners()
    is_remote = config.remote_listen is not None
    if config.flag("metrics.enabled") or is_remote:
        found.board = Board()
    if config.flag("metrics.enabled"):
        assert found.board is not None
        board, bounds = found.board, _bounds(config, "metrics")
        with _listening(config, "metrics.listen") as listening:
            kept = (listening.fileno(),)
            found.processes["metrics"] = fork_helper(lambda: _serve_metrics(board, bounds), kept)
    if is_remote:
        assert found.board is not None
        found.remote = SnapshotBoard()
        found.processes["remote"] = _start_remote(config, (found.remote, found.board))
    return found


def _listening(config: Config, key: str) -> socket.socket:
    try:
        return listen_on(*address(config.text(key)))
    except OSError as error:
        raise QjouleError(f"{key}: {config.text(key)}: {error.strerror}") from None


def _bounds(config: Config, section: str) -> Bounds:
    connections = config.whole(f"{section}.connections")
    rate = config.number(f"{section}.requests_per_second")
    return Bounds(connections, rate, connections // 2 if section == "remote" else 0)


def _serve_metrics(board: Board, bounds: Bounds) -> None:
    """The whole life of the process that serves metrics."""
    server = MetricsServer(socket.socket(fileno=FIRST), board, bounds)
    board.read()
    _warm_up()
    confine_listener()
    server.serve()


def _warm_up() -> None:
    warm_up([Family("qjoule_build", "info", "", samples=[Sample((("version", ""),), "1")])])


def _start_remote(config: Config, boards: tuple[SnapshotBoard, Board]) -> int:
    """Starts the process for other desks, and waits until it has read its files.

    The key and the tokens are read there, so the engine never has them.
    """
    says, told = os.pipe()
    try:
        with _listening(config, "remote.listen") as listening:
            kept = (listening.fileno(), told, _STDERR)
            pid = fork_helper(lambda: _serve_remote(config, boards), kept)
        os.close(told)
        told = -1
        words = b""
        while select.select([says], [], [], _READY_S)[0] and (part := os.read(says, _MAX_WORDS)):
            words += part
    finally:
        os.close(says)
        if told >= 0:
            os.close(told)
    if words != _READY:
        raise QjouleError(words.decode("utf-8", "replace") or "remote: the process ended at once")
    return pid


def _serve_remote(config: Config, boards: tuple[SnapshotBoard, Board]) -> None:
    """The whole life of the process for other desks."""
    told = FIRST + 1
    try:
        server = _remote_server(config, boards)
        _warm_up()
        remote.warm_up()
        confine_listener()
    except QjouleError as error:
        os.write(told, str(error).encode()[:_MAX_WORDS])
        os._exit(1)
    os.write(told, _READY)
    os.close(told)
    server.serve()


def _remote_server(config: Config, boards: tuple[SnapshotBoard, Board]) -> RemoteServer:
    tokens, ca = config.text("remote.token_file"), config.text("remote.client_ca")
    try:
        scopes = scopes_of(config.text("remote.client_scopes"))
    except ValueError as error:
        raise UsageError(f"remote.client_scopes: {error}") from None
    holders = read_tokens(tokens, read_secret(Path(tokens))) if tokens else ()
    certificate = config.text("remote.tls_certificate")
    tls = None
    if certificate:
        key = config.text("remote.tls_key")
        tls = server_context(certificate, key, ca, needs_certificate=not tokens)
    return RemoteServer(
        socket.socket(fileno=FIRST),
        boards,
        Access(holders, scopes if ca else frozenset()),
        Audit(FIRST + 2),
        _bounds(config, "remote"),
        page=page(),
        tls=tls,
    )
