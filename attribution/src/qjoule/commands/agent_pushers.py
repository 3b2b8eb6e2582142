# SPDX-License-Identifier: Apache-2.0
"""The agent's processes that send its metrics to others, one for each receiver."""

from __future__ import annotations

import os
from collections.abc import Callable

from qjoule.agent.config import Config
from qjoule.commands.agent_listeners import Listeners
from qjoule.errors import QjouleError
from qjoule.metrics.board import Board
from qjoule.push.pusher import Pusher, Send, Tally
from qjoule.root_part.reader_filter import keep_from_starting
from qjoule.session.ready_helper import end_because, fork_ready, say_ready

_PATIENCE_S = 30.0  #: until it has loaded its libraries


def start_pushers(config: Config, listeners: Listeners, now_s: float) -> list[Tally]:
    """Starts what the configuration names, and says what they did. `now_s`: Unix time.

    Raises QjouleError: a library or a file is missing.
    """
    found: list[Tally] = []
    for to, key, make in (
        ("remote_write", "push.remote_write_url", _remote_write),
        ("otlp", "push.otlp_endpoint", _otlp),
    ):
        if config.text(key):
            listeners.board = board = listeners.board or Board()
            tally = Tally(to, now_s)
            listeners.processes[to] = _start(config, board, tally, make)
            found.append(tally)
    return found


def _start(config: Config, board: Board, tally: Tally, make: Callable[[Config], Send]) -> int:
    """Starts one, and waits until it has read its files. Its libraries are loaded there alone."""
    pid, why_not = fork_ready(lambda: _live(config, board, tally, make), (), _PATIENCE_S)
    if why_not is not None:
        raise QjouleError(f"push: {why_not or 'the process ended at once'}")
    return pid


def _live(config: Config, board: Board, tally: Tally, make: Callable[[Config], Send]) -> None:
    """The whole life of the process."""
    try:
        send = make(config)
        keep_from_starting(connecting=True)
    except QjouleError as error:
        end_because(error)
    say_ready()
    os.nice(5)
    Pusher(board, send, config.number("push.every_s"), tally).run()


def _remote_write(config: Config) -> Send:
    from qjoule.push.http import Poster  # noqa: PLC0415 (in the process that sends alone)
    from qjoule.push.remote_write import RemoteWrite  # noqa: PLC0415

    headers = _headers(config.text("push.remote_write_header_file"))
    poster = Poster(config.text("push.remote_write_url"), headers, config.text("push.ca"))
    own = (("instance", os.uname().nodename), ("job", "qjoule"))
    return RemoteWrite(poster, own).send


def _otlp(config: Config) -> Send:
    from qjoule.push.otlp import Otlp  # noqa: PLC0415 (it loads OpenTelemetry)

    headers = _headers(config.text("push.otlp_header_file"))
    endpoint, ca = config.text("push.otlp_endpoint"), config.text("push.ca")
    return Otlp(endpoint, headers, os.uname().nodename, ca).send


def _headers(path: str) -> dict[str, str]:
    from qjoule.push.http import read_headers  # noqa: PLC0415

    return read_headers(path) if path else {}
