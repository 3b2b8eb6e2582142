# SPDX-License-Identifier: Apache-2.0
"""Counts the requests of servers for `qjoule doctor --traffic`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from qjoule.contract import Block, Mode, SessionEvent
from qjoule.interrupts import stopping
from qjoule.servers.attach_plan import AttachPlan
from qjoule.session.targets import Targets
from qjoule.session.tracer import Settings, Tracer
from qjoule.session.tracing import tracing
from qjoule.stream.block_reader import Losses, known_causes
from qjoule.stream.blocks import Frame, Stream
from qjoule.trace.vocabulary import ATTACH_MODES


@dataclass(frozen=True)
class Traffic:
    """Counts of the servers' requests. Servers are numbered as in the plan."""

    seconds: float
    requests: Mapping[int, int] = field(default_factory=dict)  #: counted, by server
    attach_modes: Mapping[int, frozenset[str]] = field(default_factory=dict)  #: by server
    hidden: Mapping[int, int] = field(default_factory=dict)  #: encrypted sessions, by server
    loss: Mapping[str, int] = field(default_factory=dict)  #: by cause, summed over servers
    problem: str = ""  #: why nothing was measured


def measure_traffic(plan: AttachPlan, seconds: float) -> Traffic:
    """Traces the plan's servers for `seconds`, without energy or counters. Keeps no text.

    Afterwards this process can neither attach again nor open files (see `tracing`).

    Raises:
        QjouleError: there is no root part, or the tracer failed, with its message.
    """
    settings = Settings(Mode.RECORD, energy="none", counters=False)
    with ExitStack() as stopped_by:

        def attached(tracer: Tracer) -> None:
            stopped_by.enter_context(stopping(tracer.stop, seconds))

        with tracing(Targets(plan), settings, attached=attached) as running:
            traffic = sum_up(running.stream, seconds)
            stopped_by.close()
            running.tracer.close()
    return traffic


def sum_up(stream: Stream, seconds: float) -> Traffic:
    """Counts the requests of a stream until its end."""
    losses = Losses()
    requests: Counter[int] = Counter()
    attach_modes: dict[int, set[str]] = {}
    hidden: Counter[int] = Counter()
    for frame in stream:
        if frame.kind is Block.QUERY:
            _add_requests(frame, requests, attach_modes)
        elif frame.kind is Block.SESSION and frame.records["event"][0] == SessionEvent.OPAQUE:
            hidden[int(frame.records["server"][0])] += 1
        elif frame.kind is Block.LOSS:
            losses.add(frame.records[known_causes(frame.records)])
    names = {server: frozenset(modes) for server, modes in attach_modes.items()}
    return Traffic(seconds, dict(requests), names, dict(hidden), losses.counts())


def _add_requests(frame: Frame, requests: Counter[int], attach_modes: dict[int, set[str]]) -> None:
    for server, attach_mode, executions in frame.records[
        ["server", "attach_mode", "executions"]
    ].tolist():
        if executions:
            requests[server] += executions
            attach_modes.setdefault(server, set()).add(
                ATTACH_MODES[attach_mode] if attach_mode < len(ATTACH_MODES) else ""
            )
