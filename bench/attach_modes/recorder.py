# SPDX-License-Identifier: Apache-2.0
"""Traces the server under test in turns, from a separate process.

It works like `qjoule record` (plan, tracer, stream) except that it writes no trace to disk. The
process stays alive, so hundreds of turns need no start of Python and no search for servers.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from qjoule.contract import AttachMode, Block, Mode
from qjoule.errors import QjouleError
from qjoule.root_part import client
from qjoule.root_part.jvms import reach_by
from qjoule.servers.attach_plan import AttachPlan
from qjoule.servers.discovery import find_servers
from qjoule.servers.registered import put_agents
from qjoule.session.targets import plan_tracing
from qjoule.session.tracer import Settings, Tracer, start_tracer
from qjoule.stream.block_reader import Losses, known_causes
from qjoule.stream.blocks import Stream
from tracing.root_part import root_part, with_handles

_PATIENCE_S = 60.0


@dataclass
class Recorded:
    """A turn of tracing. The last two fields are known once it has ended."""

    root: int  #: the process of the root part, which holds the BPF programs
    version: str  #: queries of the server; empty if it is left out
    executions: int = 0
    lost_records: dict[str, int] | None = None


class Recorder:
    """Starts the process that traces, and ends it: a context manager."""

    def __init__(self, cpus: frozenset[int], *, client_tags: bool = False) -> None:
        """Runs itself and its tracers on these CPUs. `client_tags`: passes the option of
        that name.
        """
        context = multiprocessing.get_context("spawn")
        self._pipe, child_end = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(child_end, cpus, client_tags), daemon=True
        )
        self._process.start()
        child_end.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(_PATIENCE_S)
        self._process.kill()

    @contextmanager
    def tracing(self, pid: int, attach_mode: AttachMode) -> Iterator[Recorded]:
        """Records; yields once everything is attached. Attach mode NONE leaves the server out.

        Raises:
            QjouleError: the server cannot be traced on this attach mode.
        """
        turn = self._request((pid, attach_mode))
        yield turn
        recorded = self._request(None)
        turn.executions, turn.lost_records = recorded.executions, recorded.lost_records

    def _request(self, request: tuple[int, AttachMode] | None) -> Recorded:
        self._pipe.send(request)
        if not self._pipe.poll(_PATIENCE_S):
            raise QjouleError("the recorder does not answer")
        try:
            answer = self._pipe.recv()
        except EOFError:
            raise QjouleError("the recorder has ended") from None
        if isinstance(answer, str):
            raise QjouleError(answer)
        assert isinstance(answer, Recorded)
        return answer


class _Turn:
    """A running tracer, and a thread that reads its stream."""

    def __init__(self, tracer: Tracer, version: str, root: ExitStack, pid: int) -> None:
        """`root`: the root part with this pid, which holds the tracer's probes."""
        self._root = root
        self.recorded = Recorded(pid, version, 0, {})
        self._tracer = tracer
        self._failed: QjouleError | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            self._read_stream()
        except QjouleError as error:
            self._failed = error

    def _read_stream(self) -> None:
        losses = Losses()
        for frame in Stream(self._tracer.stream):
            if frame.kind is Block.QUERY:
                self.recorded.executions += int(frame.records["executions"].sum())
            elif frame.kind is Block.LOSS:
                losses.add(frame.records[known_causes(frame.records)])
        self.recorded.lost_records = losses.counts()

    def end(self) -> Recorded:
        with self._root:
            self._tracer.stop()
            self._reader.join()
            self._tracer.close()
        if self._failed is not None:
            raise self._failed
        return self.recorded


def _serve(pipe: Connection, cpus: frozenset[int], client_tags: bool) -> None:
    os.sched_setaffinity(0, cpus)
    plans: dict[tuple[int, AttachMode], AttachPlan] = {}
    settings = Settings(Mode.RECORD, client_tags=client_tags)
    turn: _Turn | None = None
    try:
        while True:
            request = pipe.recv()
            try:
                if request is None:
                    assert turn is not None
                    ending, turn = turn, None
                    pipe.send(ending.end())
                else:
                    turn = _begin(request[0], request[1], plans, settings)
                    pipe.send(turn.recorded)
            except QjouleError as error:
                pipe.send(str(error))
    except (EOFError, KeyboardInterrupt):
        pass
    finally:
        if turn is not None:
            turn.end()


def _begin(
    pid: int,
    attach_mode: AttachMode,
    plans: dict[tuple[int, AttachMode], AttachPlan],
    settings: Settings,
) -> _Turn:
    """Starts a root part for this turn: each root part serves only one tracer."""
    with ExitStack() as stack:
        root = stack.enter_context(root_part())
        agents = {}
        if attach_mode is AttachMode.AGENT:
            reach = reach_by(client.RootPart(root.connection))
            agents = put_agents(find_servers(), reach, [pid])
        plan = plans.get((pid, attach_mode))
        if attach_mode is AttachMode.NONE:
            plan = AttachPlan(())
        elif plan is None or agents:
            plan = plan_tracing([pid], None if agents else attach_mode, agents=agents)
            if plan.traced[0].choice.attach_mode is not attach_mode:
                raise QjouleError(plan.traced[0].choice.why)
            plans[pid, attach_mode] = plan
        tracer = start_tracer(with_handles(root, plan), settings, [pid], agents, root.connection)
        tracer.wait_attached()
        version = plan.traced[0].server.version if plan.traced else ""
        return _Turn(tracer, version, stack.pop_all(), root.pid)
