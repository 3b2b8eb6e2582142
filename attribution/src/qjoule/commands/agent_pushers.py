# SPDX-License-Identifier: Apache-2.0
"""The agent's process that sends its metrics to a receiver of OTLP."""

from __future__ import annotations

import os

from qjoule.agent.config import Config
from qjoule.commands.agent_listeners import Listeners
from qjoule.errors import QjouleError
from qjoule.metrics.board import Board
from qjoule.push.pusher import Pusher, Send, Tally
from qjoule.root_part.reader_filter import keep_from_starting
from qjoule.session.ready_helper import end_because, fork_ready, say_ready

_PATIENCE_S = 30.0  #: until it has loaded its libraries


def start_pushers(config: Config, listeners: Listeners, now_s: float) -> list[Tally]:
    """Starts it if the configuration names a receiver, and says what it did. `now_s`: Unix time.

    It has read its files then. Its libraries are loaded there alone. Raises QjouleError: a library
    or a file is missing.
    """
    if not config.text("push.otlp_endpoint"):
        return []
    listeners.board = board = listeners.board or Board()
    tally = Tally("otlp", now_s)
    pid, why_not = fork_ready(lambda: _live(config, board, tally), _PATIENCE_S)
    if why_not is not None:
        raise QjouleError(f"push: {why_not or 'the process ended at once'}")
    listeners.processes["otlp"] = pid
    return [tally]


def _live(config: Config, board: Board, tally: Tally) -> None:
    """The whole life of the process."""
    try:
        send = _otlp(config)
        keep_from_starting(connecting=True)
    except QjouleError as error:
        end_because(error)
    say_ready()
    os.nice(5)
    Pusher(board, send, config.number("push.every_s"), tally).run()


def _otlp(config: Config) -> Send:
    from qjoule.push.header_file import read_headers  # noqa: PLC0415 (in this process alone)
    from qjoule.push.otlp import Otlp  # noqa: PLC0415 (it loads OpenTelemetry)

    path = config.text("push.otlp_header_file")
    headers = read_headers(path) if path else {}
    endpoint, ca = config.text("push.otlp_endpoint"), config.text("push.ca")
    return Otlp(endpoint, headers, os.uname().nodename, ca).send
