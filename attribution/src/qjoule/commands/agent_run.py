# SPDX-License-Identifier: Apache-2.0
"""Runs the agent: finds servers, traces them, and feeds the service until it stops."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

from qjoule.agent import handover
from qjoule.agent.config import Config
from qjoule.agent.cost import CostMeter, ProgramTotals
from qjoule.agent.degradation import PROBES_LEFT_OUT, Controller, DegradationLevel
from qjoule.agent.journal import Journal
from qjoule.agent.notify import Manager
from qjoule.agent.recent_queries import RecentQueries
from qjoule.agent.recordings import FlightRecorder, create_directory
from qjoule.agent.restarts import UntracedServers
from qjoule.agent.rollup_layout import OWN_STORE
from qjoule.agent.rollups import Rollups
from qjoule.agent.service import REFRESH_S, Service, limits, retention_of, store_path
from qjoule.agent.store_directory import let_group_read
from qjoule.commands.agent_listeners import Listeners
from qjoule.commands.agent_writer import WriterProcess
from qjoule.commands.options import attach_mode
from qjoule.commands.say import say
from qjoule.commands.stack_sampling import Naming, ring_mb
from qjoule.contract import AttachMode, Block, Mode
from qjoule.engine.keys import TAG
from qjoule.engine.live_groups import PER_SERVER, per_tag
from qjoule.errors import QjouleError
from qjoule.lazy_import import leave_masks_out
from qjoule.live.options import LiveOptions
from qjoule.live.recent_stacks import WholeMinutes
from qjoule.live.sources import StreamSource
from qjoule.machine.active_calibration import for_machine
from qjoule.machine.throttling import RecentCounts
from qjoule.metrics.tagged import TagCounters
from qjoule.process import return_freed_memory
from qjoule.root_part.access import owner_of_process
from qjoule.root_part.client import root_part
from qjoule.root_part.protocol import START_AGAIN, UPROBES
from qjoule.servers.decoding import fingerprint
from qjoule.session.options import TracingOptions
from qjoule.session.targets import NO_SERVERS, Targets, find_targets
from qjoule.session.tracer import Settings
from qjoule.session.tracing import Applications, Tracing, tracing
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Frame, Stream
from qjoule.stream.context import StreamContext
from qjoule.trace.meta import Server

#: The kernel side sums per window. Most of our processes' time is spent per window, and users see
#: whole intervals only: twice the window of `top` takes a third less.
WINDOW_MS = 200
#: For the budget's levels from 1 on.
COARSE_WINDOW_MS = 500
#: Processing windows together halves their cost, and a restarted server is still followed within a
#: second.
FLUSH_MS = 1000
#: Rings hold the texts, sessions and tasks of a window: 1 MB per CPU, which counts as memory.
_LEAST_RING_MB, _MOST_RING_MB = 2, 8


def run(
    config: Config,
    load: Callable[[], Config],
    manager: Manager,
    listeners: Listeners,
    *,
    recordings: Path | None = None,
    pids: Collection[int] = (),
) -> int:
    """Runs until it is stopped. `recordings`: the flight recorder's directory."""
    leave_masks_out()
    path = store_path(config)
    if path is not None:
        if str(path) == OWN_STORE and not path.exists():
            with suppress(OSError):  # the store says what is wrong
                path.mkdir(mode=0o700, parents=True)
                path.chmod(0o750)
        try:
            let_group_read(path)
        except OSError as error:
            say(f"store.path: {error.filename}: {error.strerror}: its group may not read all of it")
    rollups = writer = None
    if path is not None:
        journal = Journal(path, os.uname().nodename, retention_of(config))
        writer = WriterProcess(path)
        rollups = Rollups(journal, writer.run, say)
    handed = handover.take(path, limits(config), time.time(), say)
    service = Service(
        config, load, handed, manager, say, listeners.board, rollups, listeners.snapshots
    )
    service.processes |= {"root part": os.getppid(), "engine": os.getpid()}
    service.processes |= listeners.processes
    if writer is not None:
        service.processes["store"] = writer.pid
    try:
        _trace_servers(service, listeners, recordings, pids)
    finally:
        # Also if the tracer failed: the counts until then are valid.
        manager.stopping()
        service.close(orderly=True)
        if writer is not None:
            writer.close()
    return START_AGAIN if service.starts_again else 0


def _trace_servers(
    service: Service, listeners: Listeners, recordings: Path | None, pids: Collection[int]
) -> None:
    config = service.config
    service.controller = _controller(service)
    service.level = level = service.handed.shed.level
    service.untraced = UntracedServers(
        service.handed.restarts,
        say,
        config.tracing.attach,
        stored=service.rollups is not None,
        owner=owner_of_process,
        chosen=bool(pids),
        level=level,
    )
    if recordings is not None and not level:  # it records every query: the first to be left out
        most, directory = config.recordings.kept, create_directory(recordings)
        service.recorder = FlightRecorder(directory, root_part().flight_recorder, most, say)
    # From level 1 on, the kernel side does not read tags.
    tag = "" if level else config.tracing.tag
    summed = () if level else config.tags
    if tag:
        service.tags = TagCounters(tag, limits(config))
    targets = _targets(service, pids, client_tags=bool(tag or summed))
    hertz = 0 if level else config.stacks.hertz
    window_ms = COARSE_WINDOW_MS if level else WINDOW_MS
    ring = min(max(os.cpu_count() or 1, _LEAST_RING_MB), _MOST_RING_MB)
    settings = Settings(
        Mode.LIVE,
        window_ms=window_ms,
        flush_ms=FLUSH_MS,
        energy=config.tracing.energy,
        counters=config.tracing.counters and not level,
        client_tags=bool(tag or summed),
        samples=_samples_per_statement(config, level),
        ring_mb=ring + ring_mb(hertz, window_ms),
        stacks_hz=hertz,
    )
    naming = Naming()
    traced = tracing(targets, settings, applications=Applications.ALL, modules=naming.start)
    with closing(naming), traced as running:
        service.processes["tracer"] = running.tracer.pid
        if targets.reattach_helper is not None:
            service.processes["keeper"] = targets.reattach_helper.pid
        if naming.pid:
            service.processes["names"] = naming.pid
        if running.code is not None:
            service.processes["code"] = running.code.pid
        if hertz and listeners.profiles is not None:
            from qjoule.commands.agent_profiles import MinuteProfiles  # noqa: PLC0415 (if wanted)

            service.profile = MinuteProfiles(listeners.profiles, hertz, say).take
        if listeners.samples is not None:
            service.recent_queries = RecentQueries(listeners.samples, say)
        service.meter = CostMeter(service.processes, _bpf_run_totals, config.budget.trap_ns, say)
        if service.rollups is not None:
            service.rollups.start()
        with _handle_signals(service, running.tracer.stop):
            _trace(service, targets, running, naming)


def _samples_per_statement(config: Config, level: int) -> int:
    """How many queries of each statement to sample; from level 1 on at most one."""
    samples = config.store.samples if config.store.enabled else 0
    return min(samples, 1) if level else samples


def _bpf_run_totals() -> tuple[ProgramTotals, int]:
    accounts, fd = root_part().accounts()
    return ProgramTotals(accounts[UPROBES].runs, sum(account.ns for account in accounts)), fd


def _controller(service: Service) -> Controller | None:
    """Returns the controller that enforces the budget; None without a budget or a store."""
    limit = service.config.budget.share
    if limit is not None and service.rollups is None:
        say("budget.cpu: without a store no level outlasts a start: nothing is left out")
    if limit is None or service.rollups is None:
        service.handed.shed = DegradationLevel()
        return None
    return Controller(limit, service.handed.shed)


def _targets(service: Service, pids: Collection[int], *, client_tags: bool = False) -> Targets:
    """Returns the servers of this machine. From some level on, servers are traced by sockets if
    possible; a configured attach mode stays.

    Without any server, only the machine is measured; the agent restarts once one runs.
    """
    config = service.config
    options = TracingOptions(
        pids,
        attach_mode(config.tracing.attach),
        generic=config.tracing.generic,
        follow=config.tracing.follow,
        ids=config.tracing.ids,
        client_tags=client_tags,
        hidden=tuple(service.handed.restarts.hidden),
    )
    try:
        if service.level >= PROBES_LEFT_OUT and options.attach_mode is None:
            options = replace(options, attach_mode=AttachMode.SOCKET, fall_back=True)
        targets = find_targets(options)
    except QjouleError as error:
        if pids:
            raise
        say(f"no server yet: {error}")
        return NO_SERVERS
    for line in targets.left_out:
        say(line)
    return targets


class TickingStream(Stream):
    """Calls `tick` after each FLUSH block, which the tracer writes once a second even without
    events."""

    def __init__(self, inner: Stream, tick: Callable[[], object]) -> None:
        super().__init__(-1)
        self._inner, self._tick = inner, tick

    def __iter__(self) -> Iterator[Frame]:
        for frame in self._inner:
            yield frame
            if frame.kind is Block.FLUSH:
                self._tick()
        self._end_as(self._inner)


def _trace(service: Service, targets: Targets, running: Tracing, naming: Naming) -> None:
    config = service.config
    servers: list[Server] = list(running.meta.servers)
    running.watch.learnt.append(servers.append)
    for line in filter(None, (*running.no_stacks, running.unheard)):
        say(line)
    by_tag = () if service.tags is None else (TAG + service.tags.key,)
    also = (*by_tag, *(() if service.level else map(per_tag, config.tags)))
    context = StreamContext(
        fingerprint,
        running.meta,
        bool(also),
        running.tags,
        watch=running.watch,
        ids=targets.ids if config.tracing.ids else None,
    )
    options = LiveOptions(
        idle=config.tracing.idle,
        choose=for_machine(config.tracing.calibration or None, "none"),
        samples=_samples_per_statement(config, service.level) > 0,
        groups=(PER_SERVER, *also),
        refresh_s=REFRESH_S,
        stacks=naming.options(running.no_stacks, WholeMinutes),
        throttling=RecentCounts(),
    )
    stream, tracer = TickingStream(running.stream, service.tick), running.tracer
    source = StreamSource(stream, context, options, stop=tracer.stop, failure=tracer.last_words)
    controls = Controls(config.tracing.interval_s, PER_SERVER, totals=False, also=also)
    status = f"tracing {targets.names or 'no server'}"
    say(f"{status}; counters go on" if service.handed.continued else status)
    service.manager.ready(status)
    for snapshot in source.snapshots(controls):
        service.take(snapshot, servers)
        return_freed_memory()


@contextmanager
def _handle_signals(service: Service, stop: Callable[[], None]) -> Iterator[None]:
    """Within the block, SIGTERM and SIGINT end the stream, and SIGHUP reloads at the next tick."""
    service.stop = stop

    def end(_number: int, _frame: FrameType | None) -> None:
        stop()

    def reload(_number: int, _frame: FrameType | None) -> None:
        service.wants_reload = True

    handlers = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}
    before = {number: signal.signal(number, of) for number, of in handlers.items()}
    try:
        yield
    finally:
        for number, of in before.items():
            signal.signal(number, of)
