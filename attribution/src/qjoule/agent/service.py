# SPDX-License-Identifier: Apache-2.0
"""The agent's loop: takes snapshots, adds them to the counters, shows them and stores them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qjoule import __version__
from qjoule.agent import handover
from qjoule.agent.config import Config
from qjoule.agent.cost import CostMeter, process_families
from qjoule.agent.degradation import LEVELS, Controller
from qjoule.agent.handover import Handover
from qjoule.agent.journal import Retention
from qjoule.agent.minute import sample_rows
from qjoule.agent.notify import Manager
from qjoule.agent.recent_queries import RecentQueries
from qjoule.agent.recordings import FlightRecorder
from qjoule.agent.restarts import UntracedServers, not_traced
from qjoule.agent.rollups import Rollups
from qjoule.contract import CONTRACT_VERSION
from qjoule.errors import QjouleError
from qjoule.metrics.collected import counter_families, left_out_family, throttled_family
from qjoule.metrics.counters import Limits
from qjoule.metrics.exemplars import Exemplars
from qjoule.metrics.exposition import Family, Sample, gauge, seconds, unlabelled_gauge
from qjoule.metrics.interval import interval_of, tagged_of
from qjoule.metrics.shared import Board, SnapshotBoard
from qjoule.metrics.tagged import TagCounters
from qjoule.model.result import Attribution
from qjoule.remote.wire import encode
from qjoule.snapshots import Snapshot
from qjoule.trace.meta import HIDDEN, Server

#: Seconds after which the power model is fitted again, if no block of windows ends before. Fitting
#: takes most of the engine's time.
REFRESH_S = 60.0
#: The engine is not well if it shows nothing for so many intervals.
STALE_INTERVALS = 3


@dataclass
class Service:
    """One run of the agent. `say` logs a line; `load` reads the configuration again."""

    config: Config
    load: Callable[[], Config]
    handed: Handover
    manager: Manager
    say: Callable[[str], object]
    board: Board | None = None
    rollups: Rollups | None = None
    live: SnapshotBoard | None = None  #: for the page
    meter: CostMeter | None = None  #: of what tracing costs
    controller: Controller | None = None  #: keeps the cost within the budget
    tags: TagCounters | None = None  #: of queries by the tag `tracing.tag`
    recorder: FlightRecorder | None = None  #: beside the agent
    #: Called with each snapshot, the servers and the Unix time, if stacks are sampled.
    profile: Callable[[Snapshot, Sequence[Server], float], object] | None = None
    recent_queries: RecentQueries | None = None  #: shows drawn queries, if configured
    exemplars: Exemplars = field(default_factory=Exemplars)
    processes: dict[str, int] = field(default_factory=dict)
    clock: Callable[[], float] = time.time
    wants_reload: bool = False
    starts_again: bool = False  #: a server runs that only another start can trace
    stop: Callable[[], None] = lambda: None
    began_s: float = field(default_factory=time.time)  #: Unix time at which the processes began
    level: int = 0  #: of the budget, in this run
    untraced: UntracedServers | None = None
    _status: str = ""

    def take(self, snapshot: Snapshot, servers: Sequence[Server]) -> None:
        """Processes one interval."""
        wall_s = self.clock()
        counters = self.handed.counters
        interval = interval_of(snapshot.interval, self.config.metrics.text_length)
        folded = counters.take(interval, snapshot.elapsed_s, wall_s)
        sampled = snapshot.sampled
        rows = [] if sampled is None else sample_rows(sampled, interval, wall_s)
        by_tag = None if self.tags is None else snapshot.also.get(f"tag:{self.tags.key}")
        if self.tags is not None and by_tag is not None:
            self.tags.take(by_tag, snapshot.elapsed_s, wall_s)
        if self.rollups is not None:
            self.rollups.take(folded, wall_s)
            for result in snapshot.also.values():
                self.rollups.take_tagged(tagged_of(result), counters)
            self.rollups.take_samples(rows)
            self.rollups.describe(counters, servers, wall_s)
        if self.recent_queries is not None:
            self.recent_queries.take(rows, interval.grade, interval.policy, wall_s)
        self.exemplars.take(rows, wall_s)
        self._show(snapshot, servers, wall_s)
        if self.profile is not None:
            self.profile(snapshot, servers, wall_s)
        self._set_alive_file(wall_s)
        self._show_live(snapshot, servers)
        self._restart_for_servers(snapshot)
        self.manager.status(self._status_text(snapshot.interval))

    def tick(self) -> None:
        """To be called each second."""
        self.manager.alive()
        if self.recorder is not None:
            self.recorder.tick(time.monotonic())
        cost = self.meter.tick() if self.meter is not None else None
        if cost is not None and self.controller is not None:
            self._keep_budget(self.controller, cost.known)
        if self.wants_reload:
            self.wants_reload = False
            self._reload()

    def close(self, *, orderly: bool) -> None:
        """Writes what is left. `orderly`: the counters go to the next agent."""
        if self.meter is not None:
            self.meter.close()
        if self.rollups is None:
            return
        self.rollups.close()
        if orderly:
            try:
                handover.leave(self.rollups.path, self.handed)
            except OSError as error:
                self.say(f"the counters are not handed over: {error.strerror}")

    def _keep_budget(self, controller: Controller, share: float) -> None:
        """Ends this run if the next one should trace less, or may trace more."""
        shed = controller.take(share, self.clock())
        self.handed.shed = shed or controller.shed
        if shed is not None and not self.starts_again:
            self.starts_again = True
            self.say(
                f"tracing took {shed.before:.2%} of the CPU, the budget is "
                f"{controller.limit:.2%}: starting again at level {shed.level}, which leaves out "
                f"{', '.join(LEVELS[1 : shed.level + 1]) or LEVELS[0]}"
            )
            self.stop()

    def _reload(self) -> None:
        self.manager.reloading()
        try:
            new = self.load()
        except QjouleError as error:
            self.say(f"the configuration stays as it was: {error}")
        else:
            for name in new.keys_of_next_start(self.config):
                self.say(f"{name}: takes effect at the next start")
            self.config = new
            self.handed.counters.set_limits(limits(new))
            if self.tags is not None:
                self.tags.set_limits(limits(new))
            if self.rollups is not None:
                self.rollups.keep(retention_of(new))
            self.say("the configuration was read again")
        self.manager.ready(self._status)

    def _show(self, snapshot: Snapshot, servers: Sequence[Server], wall_s: float) -> None:
        if self.board is not None:
            counted = self.exemplars.with_exemplars(counter_families(self.handed.counters))
            families = [*counted, *self._own_families(snapshot, servers, wall_s)]
            non_empty = [family for family in families if family.samples]
            if not self.board.show(non_empty, time.monotonic(), self._stale_s):
                self.say("the metrics do not fit their bound and stay as they were")

    def _set_alive_file(self, wall_s: float) -> None:
        """Sets a file's time to when this interval is stale: `find FILE -newermt now` then tells
        that the engine is well. Nobody beyond this machine can prevent that."""
        if not (path := self.config.metrics.alive_file):
            return
        stale_s = wall_s + self._stale_s
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            file = os.open(path, flags, 0o644)
            try:
                os.utime(file, (stale_s, stale_s))
            finally:
                os.close(file)
        except OSError as error:
            self.say(f"metrics.alive_file: {path}: {error.strerror}")

    def _show_live(self, snapshot: Snapshot, servers: Sequence[Server]) -> None:
        if self.live is not None:
            name = ", ".join(dict.fromkeys(server.name for server in servers))
            if not self.live.show(encode(snapshot, name), time.monotonic(), self._stale_s):
                self.say("a snapshot does not fit its bound: the page stays as it was")

    @property
    def _stale_s(self) -> float:
        return STALE_INTERVALS * self.config.tracing.interval_s

    def _own_families(
        self, snapshot: Snapshot, servers: Sequence[Server], wall_s: float
    ) -> Iterator[Family]:
        created = self.handed.counters.created_s
        yield unlabelled_gauge(
            "qjoule_start_time_seconds",
            "Unix time at which the counters were 0; another value is a reset.",
            created,
            "seconds",
        )
        yield unlabelled_gauge(
            "qjoule_last_interval_timestamp_seconds",
            "Unix time at which the last interval was added.",
            wall_s,
            "seconds",
        )
        version = (("version", __version__), ("contract", str(CONTRACT_VERSION)))
        yield Family("qjoule_build", "info", "This agent.", samples=[Sample(version, "1")])
        dark = {change.name for change in not_traced(snapshot.interval)}
        traced = {server.name: int(server.name not in dark) for server in servers}
        traced |= dict.fromkeys(dark, 0)
        about = "Whether a server's queries are seen; 0: it runs untraced or has exited."
        yield gauge("qjoule_server_traced", about, "server", traced)
        yield Family(
            "qjoule_server",
            "info",
            "The servers that are traced.",
            samples=[
                Sample(
                    (
                        *(("server", server.name), ("kind", server.kind)),
                        *(("version", server.version), ("attach_mode", server.attach_mode)),
                    ),
                    "1",
                )
                for server in {server.name: server for server in servers}.values()
            ],
        )
        yield left_out_family(snapshot.interval.energy_source.left_out)
        yield throttled_family(snapshot.interval.trace.throttled)
        yield from process_families(self.processes, seconds(self.began_s))
        if self.tags is not None:
            yield from self.tags.families()
        if self.meter is not None:
            yield from self.meter.families()
        if self.controller is not None:
            about = "Share of the machine's CPU time that tracing may take."
            yield unlabelled_gauge("qjoule_budget_ratio", about, self.controller.limit, "ratio")
            about = "What is left out to keep the budget; 0: nothing."
            yield unlabelled_gauge("qjoule_budget_level", about, self.level)
        if self.rollups is not None:
            yield from self.rollups.families()

    def _restart_for_servers(self, snapshot: Snapshot) -> None:
        """Ends this run if a server needs programs that only another start can load."""
        if self.untraced is not None and not self.starts_again:
            why = self.untraced.worth_a_start(snapshot, self.clock())
            if why:
                self.starts_again = True
                self.say(f"{why}: starting again")
                self.stop()

    def _status_text(self, result: Attribution) -> str:
        watts = (
            result.main.measured_nj / 1e9 / result.trace.duration_s if self._timed(result) else 0.0
        )
        calls = sum(row.calls for row in result.rows)
        rate = calls / result.trace.duration_s if result.trace.duration_s else 0.0
        self._status = f"{watts:.1f} W ({result.energy_source.grade}), {rate:.0f} queries/s"
        hiding = [change.name for change in result.trace.changes if change.what == HIDDEN]
        if hiding:
            self._status += f", sessions of {', '.join(hiding)} hidden by TLS or compression"
        for name, why in result.energy_source.left_out.items():
            self._status += f", {name} left out: {why}"
        if result.trace.throttled:
            self._status += ", CPUs throttled by heat in the last minute"
        if self.controller is not None and self.meter is not None and self.meter.cost is not None:
            self._status += f", budget level {self.level}, takes {self.meter.cost.known:.2%} CPU"
        return self._status

    @staticmethod
    def _timed(result: Attribution) -> bool:
        return bool(result.domains) and result.trace.duration_s > 0


def limits(config: Config) -> Limits:
    return Limits(config.metrics.shapes, config.metrics.lifetime_s)


def retention_of(config: Config) -> Retention:
    return Retention(
        config.store.days,
        config.store.megabytes,
        config.store.minute_shapes,
        config.store.tag_values,
    )


def store_path(config: Config) -> Path | None:
    return Path(config.store.path) if config.store.enabled else None
