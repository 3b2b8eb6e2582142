# SPDX-License-Identifier: Apache-2.0
"""The agent's processes that listen: one for metrics, one for other desks.

They are started before the engine opens or imports anything else.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qjoule.agent.config import Config
from qjoule.agent.config_values import address
from qjoule.errors import QjouleError, UsageError
from qjoule.metrics.board import Board
from qjoule.metrics.families import Family, Sample
from qjoule.metrics.http import Bounds, listen_on
from qjoule.metrics.server import MetricsServer, warm_up
from qjoule.metrics.shared import SharedBytes
from qjoule.push.pusher import Tally
from qjoule.remote import server as remote
from qjoule.remote.access import read_tokens, scopes_of
from qjoule.remote.audit import Audit
from qjoule.remote.control import EngineEnd, ListenerEnd, both_ends
from qjoule.remote.page import page
from qjoule.remote.recordings import Recordings
from qjoule.remote.server import Access, RemoteServer, SnapshotBoard
from qjoule.remote.tls import read_secret, server_context
from qjoule.root_part.reader_filter import confine_listener
from qjoule.session.helper import FIRST, fork_helper
from qjoule.session.ready_helper import KEPT, end_because, fork_ready, say_ready

_PATIENCE_S = 20.0  #: until it has read its files
_STDERR = 2
_OPEN_FILES = 4096


@dataclass
class Listeners:
    """What they show, their pids by what they do, and what was sent to others."""

    board: Board | None = None
    remote: SnapshotBoard | None = None
    processes: dict[str, int] = field(default_factory=dict)
    pushed: Sequence[Tally] = ()
    directory: Path | None = None  #: for recordings
    control: Control | None = None


@dataclass
class Control:
    """What the engine and the process for other desks have of recordings."""

    board: SharedBytes = field(default_factory=SharedBytes)
    ends: tuple[socket.socket, socket.socket] = field(default_factory=both_ends)

    @property
    def engine(self) -> EngineEnd:
        return EngineEnd(self.ends[0])


def start_listeners(config: Config, recordings: Path | None = None) -> Listeners:
    """Raises `QjouleError` if one cannot listen, or has no use of its files. `recordings`: the
    directory for them.
    """
    found = Listeners(directory=recordings)
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
        found.control = None if recordings is None else Control()
        boards = (found.remote, found.board)
        found.processes["remote"] = _start_remote(config, boards, found.control)
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


_Boards = tuple[SnapshotBoard, Board]


def _start_remote(config: Config, boards: _Boards, control: Control | None) -> int:
    """Starts the process for other desks, and waits until it has read its files.

    The key and the tokens are read there, so the engine never has them.
    """
    with _listening(config, "remote.listen") as listening:
        ours = () if control is None else (control.ends[1].fileno(),)
        kept = (listening.fileno(), _STDERR, *ours)
        pid, why_not = fork_ready(lambda: _serve_remote(config, boards, control), kept, _PATIENCE_S)
    if control is not None:
        control.ends[1].close()
    if why_not is not None:
        raise QjouleError(why_not or "remote: the process ended at once")
    return pid


def _serve_remote(config: Config, boards: _Boards, control: Control | None) -> None:
    """The whole life of the process for other desks."""
    try:
        if control is not None:
            _allow_files()
        server = _remote_server(config, boards, control)
        _warm_up()
        remote.warm_up()
        confine_listener()
    except QjouleError as error:
        end_because(error)
    say_ready()
    server.serve()


def _allow_files() -> None:
    """Open files of all recordings."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = _OPEN_FILES if most == resource.RLIM_INFINITY else min(_OPEN_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _remote_server(config: Config, boards: _Boards, control: Control | None) -> RemoteServer:
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
    audit, recordings = Audit(KEPT + 1), None
    if control is not None:
        end = ListenerEnd(socket.socket(fileno=KEPT + 2))
        recordings = Recordings(end, control.board, audit)
    return RemoteServer(
        socket.socket(fileno=KEPT),
        boards,
        Access(holders, scopes if ca else frozenset()),
        audit,
        _bounds(config, "remote"),
        page=page(),
        recordings=recordings,
        tls=tls,
    )
