# SPDX-License-Identifier: Apache-2.0
"""The work of `qjoule record`, once it is planned: traces, captures and converts.

It is imported while a process plans what to trace: see `record`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qjoule.children import run_in_subprocess
from qjoule.commands.option_groups import Keeping
from qjoule.commands.record_job import Along, Job, servers
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
    if job.chosen:  # what does not fit is refused before the tracer writes anything
        job = _with_along(job)
    with ExitStack() as stack:
        if not keeping:
            spool = Spool((stack.enter_context(open_spool(Path())),), job.spool_mb, job.compress)
            return _record(targets, replace(settings, spool=spool), job, streams=streams)
        # With --keep alone.
        from qjoule.commands.flight_recorder_session import open_kept  # noqa: PLC0415

        os.environ.pop("NOTIFY_SOCKET", None)  # of the agent that had us started
        opened = open_kept(keeping, job.directory, job.spool_mb, compress=job.compress)
        spool, kept = stack.enter_context(opened)
        return _record(targets, replace(settings, spool=spool), job, kept)


def _record(
    targets: Targets,
    settings: Settings,
    job: Job,
    kept: FlightRecorderSession | None = None,
    streams: Streams | None = None,
) -> int:
    child: Running | None = None
    with ExitStack() as stopped_by, ExitStack() as last:
        if job.meter is not None:
            last.callback(job.meter.close)

        def prepare() -> None:
            nonlocal job
            if not job.chosen:
                job = _with_along(job)

        def attached(tracer: Tracer) -> None:
            nonlocal child
            for words in tracer.not_counted:
                say(words)
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
            for words in running.no_stacks:
                say(words)
            for words in (running.unheard, running.pinned):
                if words:
                    say(words)
            if kept is not None:
                stop, has_program = running.tracer.stop, bool(job.program)
                say(kept.begun(stopped_by, stop, has_program=has_program))
            written = _captured(running, job, kept, client_tags=settings.client_tags)
            if child is not None:
                child.cancel()
            failed = _closed(running.tracer)
            if failed is not None:
                # The root part may have ended, and its SIGTERM comes only once the kernel has
                # removed the probes: what was captured is still to be converted.
                outlive_the_root_part()
            stopped_by.close()
            if running.code is not None and running.code.problem:
                say(f"methods of JVMs have no names: {running.code.problem}")
            applications = 0 if running.tags is None else running.tags.applications
            written = _ended(written, job, kept, applications)
            for words in targets.asked():
                say(words)
            if failed is not None:
                raise failed
    if child is None:
        return _code(written, captured=job.later or kept is not None)
    if (code := child.exit_code()) is None:
        say(f"{Path(job.program[0]).name} was not started: the recording was stopped before")
        return 1
    return code


def _with_along(job: Job) -> Job:
    along = run_in_subprocess(lambda: Along.of(job.calibration, job.memory))
    for words in along.notes:
        say(words)
    return replace(job, along=along)


def _ended(written: Meta, job: Job, kept: FlightRecorderSession | None, applications: int) -> Meta:
    """Converts what was captured, unless it is to be done later, and says what there is."""
    if kept is not None:
        for words in kept.summary():
            say(words)
    elif job.later:
        say(job.captured(written))
    else:
        from qjoule.commands.record_tables import make_tables  # noqa: PLC0415 - 40 MB, see there

        written = make_tables(job, applications)
    return written


def _code(written: Meta, *, captured: bool) -> int:
    return 0 if written.complete or (captured and written.stopped is None) else 1


def _closed(tracer: Tracer) -> QjouleError | None:
    """Ends the tracer; returns why it failed. What it wrote until then is converted first."""
    try:
        tracer.close()
    except QjouleError as error:
        return error
    return None


def _captured(
    running: Tracing, job: Job, kept: FlightRecorderSession | None, *, client_tags: bool
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
        job.along.write()
        if kept is not None:
            return kept.run(running.stream, context)
        return Capture(Path(), context).run(running.stream)
    except QjouleError as error:
        raise QjouleError(f"{job.directory}: {error}") from None
