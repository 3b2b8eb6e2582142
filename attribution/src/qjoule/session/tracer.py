# SPDX-License-Identifier: Apache-2.0
"""Starts `qjoule-tracer`, which has no rights of its own: the root part loads and attaches for it.
Also makes a trace's first meta.json.
"""

from __future__ import annotations

import fcntl
import io
import os
import platform
import socket
import subprocess
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import cast

from qjoule.children import run_in_subprocess
from qjoule.contract import Mode
from qjoule.errors import QjouleError
from qjoule.installed import installed_program
from qjoule.machine.core_kinds import read_small_cpus
from qjoule.machine.facts import read_cpu_info, read_host_hardware
from qjoule.machine.idle_states import read_idle_states
from qjoule.machine.perf_events import FurtherCounters, PerfEvent, hardware_counters, more_counters
from qjoule.root_part.client import root_part
from qjoule.root_part.protocol import Kind, Sensors, ask
from qjoule.servers.attach_plan import AttachPlan, PlannedServer
from qjoule.servers.resolution import Agent
from qjoule.trace.meta import Meta, Server

_STOP_SECONDS = 10.0
_PIPE_BYTES = 1 << 20


@dataclass(frozen=True)
class Spool:
    """Files that the tracer writes to: open descriptors, and their largest size.

    Several form a ring; each takes `turn_ms` of the recording.
    """

    descriptors: tuple[int, ...]
    limit_mb: int
    compress: bool = False
    turn_ms: int = 60_000


@dataclass(frozen=True)
class Settings:
    """The user's choices for the tracer."""

    mode: Mode
    window_ms: int = 20
    #: Each flush wakes the reader, which costs as much as some thousand queries in the tracer. A
    #: trace that is cut off lacks its last second at most.
    flush_ms: int = 500
    energy: str = "auto"
    host_root: str | None = None
    counters: bool = True
    more_counters: tuple[PerfEvent, ...] = ()  #: further hardware counters
    ring_mb: int = 8
    client_tags: bool = False  #: read tags that clients send to servers
    samples: int = 0  #: live: queries to sample of each statement in five minutes
    stacks_hz: int = 0  #: stacks to sample in a second of CPU time
    pin_map: bool = False  #: pin the map of servers' threads: see `qjoule.session.pin`
    stack_tables: tuple[tuple[int, int], ...] = ()  #: see `qjoule.session.stacks.OpenTables`
    spool: Spool | None = None  #: receives the bulk of a recording


class Tracer:
    """A running `qjoule-tracer`. `stream` is its binary output (bpf/qjoule.h)."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        control: int,
        agents: Iterable[Agent] = (),
        counters: FurtherCounters | None = None,
    ) -> None:
        assert process.stdout is not None
        self.stream: io.BufferedReader = cast(io.BufferedReader, process.stdout)
        self.pid = process.pid
        counted = counters or FurtherCounters()
        self.more_counters = tuple(event.name for event in counted.events)
        self.not_counted = tuple(counted.missing())  #: lines about counters that do not count
        self._process = process
        self._control: int | None = control
        self._agents = tuple(agents)

    def stop(self) -> None:
        """Asks the tracer to end its stream, by closing its control pipe. It may be called twice,
        and from a signal handler."""
        control, self._control = self._control, None
        if control is not None:
            os.close(control)

    def close(self) -> None:
        """Ends the tracer. If it failed, raises `QjouleError` with the tracer's message."""
        self.stop()
        self.stream.close()
        for agent in self._agents:
            agent.close()
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise QjouleError(f"the tracer (process {self.pid}) does not end: kill it") from None
        words = self._message()
        if code and words:
            raise QjouleError(words)

    def abandon(self) -> None:
        """Like `close`, but ignores a failure: it is reported elsewhere or does not matter."""
        with suppress(QjouleError, OSError):
            self.close()

    def last_words(self) -> str:
        """Returns why the stream ended early. Closes the tracer."""
        try:
            self.close()
        except QjouleError as error:
            return str(error)
        return "the tracer was killed or crashed: start top again"

    def wait_attached(self) -> None:
        """Returns once the stream begins, that is, once everything is attached.

        Raises:
            QjouleError: the tracer could not attach, with its message.
        """
        if self.stream.peek(1):
            return
        self.stop()
        self._process.wait(_STOP_SECONDS)
        words = self._message() or f"the tracer ended with exit code {self._process.returncode}"
        raise QjouleError(words)

    def _message(self) -> str:
        if self._process.stderr is None or self._process.stderr.closed:
            return ""
        with self._process.stderr as stderr:
            lines = stderr.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].removeprefix("qjoule-tracer: ") if lines else ""


def start_tracer(
    plan: AttachPlan,
    settings: Settings,
    pids: Collection[int] = (),
    agents: Mapping[int, Agent] | None = None,
    connection: socket.socket | None = None,
) -> Tracer:
    """Starts the tracer with this plan; the caller then reads `Tracer.stream`.

    The `agents` are removed from their servers when the tracer is closed.

    Args:
        connection: to the root part whose handles are in `plan`; by default that of this process.
            It has one tracer.

    Raises:
        QjouleError: there is no root part, it refuses, or the tracer is not installed.
    """
    program = str(installed_program("qjoule-tracer"))
    with _tracer_socket(connection) as root:
        sensors = Sensors(root)
        more = more_counters(settings.more_counters, sensors.try_event)
        read_end, write_end = os.pipe()
        spool = settings.spool.descriptors if settings.spool else ()
        tables = [descriptor for pair in settings.stack_tables for descriptor in pair if descriptor]
        command = [
            program,
            *_arguments(settings, read_end, sensors),
            *(word for event in more.events for word in ("--counter", event.option)),
            *("--root", str(root.fileno())),
            *plan.arguments(),
        ]
        if pids:
            command.append("--only-running")
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(read_end, root.fileno(), *spool, *tables),
                # Ctrl-C must reach only us, so that the trace ends in order
                start_new_session=True,
            )
        except OSError as error:
            os.close(write_end)
            raise QjouleError(f"cannot start {command[0]}: {error.strerror}") from None
        finally:
            os.close(read_end)
    _enlarge_pipe(process)
    return Tracer(process, write_end, (agents or {}).values(), more)


def _tracer_socket(connection: socket.socket | None) -> socket.socket:
    if connection is None:
        return root_part().tracer_socket()
    return socket.socket(fileno=ask(connection, Kind.TRACER).fd)


def _enlarge_pipe(process: subprocess.Popen[bytes]) -> None:
    """Sets the pipe to 1 MiB, so that the tracer waits less for us, and its rings fill less."""
    if process.stdout is not None:
        with suppress(OSError):  # more than this user is allowed (pipe(7), pipe-max-size)
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


@cache
def estimated_power() -> tuple[str, str, str]:
    """Returns this machine's power by published tables, as three options of the tracer. They are
    read in a child process, because the tables would keep 2 MB here.
    """
    return (
        run_in_subprocess(_estimate_power) if threading.active_count() == 1 else _estimate_power()
    )


def _estimate_power() -> tuple[str, str, str]:
    from qjoule.machine.power_table import estimate_curve  # noqa: PLC0415 - see above

    curve = estimate_curve(read_cpu_info(), read_host_hardware())
    return curve.spec, curve.label, curve.errors


def _arguments(settings: Settings, control: int, sensors: Sensors) -> Sequence[str]:
    spec, label, errors = estimated_power()
    arguments = {
        "--mode": settings.mode.name.lower(),
        "--window-ms": settings.window_ms,
        "--flush-ms": settings.flush_ms,
        "--ring-mb": settings.ring_mb,
        "--energy": settings.energy,
        "--curve": spec,
        "--curve-label": label,
        "--curve-errors": errors,
        "--reader": os.getpid(),
        "--control-fd": control,
    }
    if settings.host_root is not None:
        arguments["--host-root"] = settings.host_root
    words = [str(word) for pair in arguments.items() for word in pair]
    if settings.client_tags:
        words.append("--tags")
    if settings.samples:
        words += ["--samples", str(settings.samples)]
    if settings.stacks_hz:
        words += ["--stacks", str(settings.stacks_hz)]
        for tables, compiled in settings.stack_tables:
            words += ["--stack-tables", str(tables)]
            words += ["--compiled", str(compiled)] if compiled else []
    if settings.spool is not None:
        for descriptor in settings.spool.descriptors:
            words += ["--spool-fd", str(descriptor)]
        words += ["--spool-mb", str(settings.spool.limit_mb)]
        words += ["--spool-turn-ms", str(settings.spool.turn_ms)]
        words += ["--compress"] if settings.spool.compress else []
    if settings.counters:
        for check in hardware_counters(sensors.try_event):
            if check.ok:
                name = check.name.removeprefix("counter ").replace("_", "-")
                words += ["--counter", name]
    return words


def trace_meta(plan: AttachPlan) -> Meta:
    """Returns the first meta of a trace of this machine and the plan's servers."""
    return Meta(
        host=platform.node(),
        kernel=platform.release(),
        cpu=read_cpu_info().name,
        servers=tuple(server_of(planned) for planned in plan.traced),
        idle_states=read_idle_states(),
        small_cpus=read_small_cpus(),
    )


def server_of(planned: PlannedServer) -> Server:
    """Returns a planned server as a trace lists it."""
    return Server(
        id=planned.server.id,
        name=planned.server.label,
        kind=str(planned.server.flavour),
        version=planned.server.version,
        exe=planned.server.program,
        attach_mode=planned.choice.attach_mode.name.lower(),
        reason=planned.choice.why,
        no_symbol=planned.choice.no_symbol,
    )
