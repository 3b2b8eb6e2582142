# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of a capture of `qjoule record`, and prints a summary.

It is imported after the recording, because its imports take 40 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from qjoule.commands.conversion import converted, pluralised, what_was_written
from qjoule.commands.record_job import Job
from qjoule.commands.say import say
from qjoule.engine.accounts import server_changes
from qjoule.engine.calls import CallCount, count_calls
from qjoule.errors import QjouleError
from qjoule.lazy_import import leave_pandas_out
from qjoule.reporters.missing import alarm_of
from qjoule.reporters.server_changes import server_change
from qjoule.spool.convert import Converted
from qjoule.trace.meta import HIDDEN, Meta
from qjoule.trace.reader import Trace


def make_tables(job: Job, applications: int) -> Meta:
    """Converts the working directory and prints a summary.

    `applications`: number of processes that reported tags.

    Raises:
        QjouleError: the conversion failed; the capture stays.
    """
    leave_pandas_out()
    try:
        result = converted(Path())
    except QjouleError as error:
        raise QjouleError(f"{job.directory}: {error}") from None
    except KeyboardInterrupt:
        say(f"{job.directory} is captured and not converted: run `qjoule convert {job.directory}`")
        raise
    for line in _summary(job, result, count_calls(Trace(".")), applications):
        say(line)
    return result.meta


def _summary(job: Job, result: Converted, counted: CallCount, applications: int) -> Iterator[str]:
    """Yields the summary, line by line."""
    meta = result.meta
    yield what_was_written(job.directory, meta, counted, job.power_files.summary)
    for change in server_changes(meta):
        if change.what != HIDDEN:  # the loss includes hidden sessions
            yield server_change(change)
    if alarm := alarm_of(meta.loss, counted.calls):
        yield f"ALARM: {alarm}"
    if job.meter is not None:
        yield job.meter.summary
    if applications:
        yield (
            f"tagged: {pluralised(result.tagged, 'query', 'queries')}, "
            f"by {pluralised(applications, 'process', 'processes')}"
        )
