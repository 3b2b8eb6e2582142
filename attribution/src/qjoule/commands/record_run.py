# SPDX-License-Identifier: Apache-2.0
"""The implementation of `qjoule record` after planning: traces, captures and converts.

`record` imports it while another process plans.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qjoule.children import run_in_subprocess
from qjoule.commands.option_groups import Keeping
from qjoule.commands.record_job import Job, PowerFiles, servers
from qjoule.commands.say import say
from qjoule.errors import QjouleError
from qjoule.interrupts import outlive_the_root_part, stopping
from qjoule.machine.throttling import ThrottleCounts
from qjoule.remote.wire import Streams
from qjoule.servers.decoding import fingerprint
from qjoule.session.program import Running, start
from qjoule.session.targets import Targets
from qjoule.session.tracer import Settings, Spool, Tracer
from qjoule.session.tracing import Applications, Tracing, tracing
from qjoule.spool.capture import Capture, CaptureContext, open_spool
from qjoule.trace.meta import Meta

if TYPE_CHECKING:
    from qjoule.commands.flight_recorder_session import FlightRecorderSession


def record(
    targets: Targets,
    settings: Settings,
    job: Job,
    keeping: Keeping,
    streams: Streams | None,
) -> int:
    """Records into the working directory; returns the exit code."""
    if job.names_power_files:  # checks the user's files before the tracer writes anything
        job = _with_power_files(job)
    with ExitStack() as stack:
        if not keeping:
            spool = Spool((stack.enter_context(open_spool(Path())),), job.spool_mb, job.compress)
            return _record(targets, replace(settings, spool=spool), job, streams=streams)
        # Only with --keep.
        from qjoule.commands.flight_recorder_session import open_flight_recorder  # noqa: PLC0415

        os.environ.pop("NOTIFY_SOCKET", None)  # belongs to the agent that started us
        opened = open_flight_recorder(keeping, job.directory, job.spool_mb, compress=job.compress)
        spool, flight_recorder = stack.enter_context(opened)
        return _record(targets, replace(settings, spool=spool), job, flight_recorder)


def _record(
    targets: Targets,
    settings: Settings,
    job: Job,
    flight_recorder: FlightRecorderSession | None = None,
    streams: Streams | None = None,
) -> int:
    child: Running | None = None
    with ExitStack() as stopped_by, ExitStack() as last:
        if job.meter is not None:
            last.callback(job.meter.close)

        def prepare() -> None:
            nonlocal job
            if not job.names_power_files:
                job = _with_power_files(job)

        def attached(tracer: Tracer) -> None:
            nonlocal child
            for line in tracer.not_counted:
                say(line)
            stopped_by.enter_context(stopping(tracer.stop, job.seconds))
            if streams is not None:
                streams.start(tracer.stop)
            if job.program:
                child = start(job.program, tracer.stop, job.rest_s)

        unseen = Applications.UNSEEN
        traced = tracing(
            targets, settings, applications=unseen, meanwhile=prepare, attached=attached
        )
        with traced as running:
            say(f"tracing {servers(running.meta)}; {job.until}")
            for line in running.no_stacks:
                say(line)
            for line in (running.unheard, running.pinned):
                if line:
                    say(line)
            if flight_recorder is not None:
                stop, has_program = running.tracer.stop, bool(job.program)
                say(flight_recorder.listen(stopped_by, stop, has_program=has_program))
            meta = _capture(running, job, flight_recorder, client_tags=settings.client_tags)
            if child is not None:
                child.cancel()
            failed = _close_tracer(running.tracer)
            if failed is not None:
                # The root part may have ended. Its SIGTERM comes once the kernel has removed the
                # probes: the capture must still be converted.
                outlive_the_root_part()
            stopped_by.close()
            if running.code is not None and running.code.problem:
                say(f"methods of JVMs have no names: {running.code.problem}")
            applications = 0 if running.tags is None else running.tags.applications
            meta = _finish(meta, job, flight_recorder, applications)
            for line in targets.refusals():
                say(line)
            if failed is not None:
                raise failed
    if child is None:
        return _exit_code(meta, captured=job.converts_later or flight_recorder is not None)
    if (code := child.exit_code()) is None:
        say(f"{Path(job.program[0]).name} was not started: the recording was stopped before")
        return 1
    return code


def _with_power_files(job: Job) -> Job:
    power_files = run_in_subprocess(lambda: PowerFiles.of(job.calibration, job.memory))
    for line in power_files.notes:
        say(line)
    return replace(job, power_files=power_files)


def _finish(
    meta: Meta, job: Job, flight_recorder: FlightRecorderSession | None, applications: int
) -> Meta:
    """Converts what was captured, unless that is for later, and prints a summary."""
    if flight_recorder is not None:
        for line in flight_recorder.summary():
            say(line)
    elif job.converts_later:
        say(job.capture_summary(meta))
    else:
        from qjoule.commands.record_tables import make_tables  # noqa: PLC0415 - 40 MB, see there

        meta = make_tables(job, applications)
    return meta


def _exit_code(meta: Meta, *, captured: bool) -> int:
    return 0 if meta.complete or (captured and meta.stopped is None) else 1


def _close_tracer(tracer: Tracer) -> QjouleError | None:
    """Ends the tracer; returns its error. The data until then is converted first."""
    try:
        tracer.close()
    except QjouleError as error:
        return error
    return None


def _capture(
    running: Tracing, job: Job, flight_recorder: FlightRecorderSession | None, *, client_tags: bool
) -> Meta:
    """Captures until the stream ends; returns the trace's metadata."""
    meta = replace(running.meta, literals=job.literals)
    context = CaptureContext(
        fingerprint, meta, client_tags, running.tags, job.meter, running.watch, job.other_ids
    )
    context = replace(context, throttled=ThrottleCounts().since)
    if running.code is not None:
        context = replace(context, compiled=running.code.unchanged)
    try:
        job.power_files.write()
        if flight_recorder is not None:
            return flight_recorder.run(running.stream, context)
        return Capture(Path(), context).run(running.stream)
    except QjouleError as error:
        raise QjouleError(f"{job.directory}: {error}") from None
