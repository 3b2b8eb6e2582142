# SPDX-License-Identifier: Apache-2.0
"""Writes a whole stream, from the tracer or made of perf's records, to disk as a trace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from qjoule.contract import Block
from qjoule.stream.blocks import Stream
from qjoule.stream.context import StreamContext
from qjoule.stream.ingest import Ingest
from qjoule.trace.meta import Meta
from qjoule.trace.writer import TraceWriter


def record(
    stream: Stream,
    writer: TraceWriter,
    context: StreamContext,
    *,
    annotate: Callable[[Meta], Meta] = lambda meta: meta,
) -> Meta:
    """Writes a whole stream as a trace and returns its meta.

    `annotate` is called whenever meta.json is written, the last time at the end, so that the caller
    can add what it has learnt meanwhile (servers that started later).

    The trace is complete if the stream reached its end block and nothing failed. Raises
    `QjouleError` if the stream is damaged or the disk is full; what came before is kept.
    """
    ingest = Ingest(writer.write, context)
    announced = None
    try:
        for frame in stream:
            if announced is not ingest.meta and frame.kind not in (Block.CPU, Block.DOMAIN):
                announced = ingest.meta
                writer.write_meta(annotate(announced))
            ingest.add(frame)
    except BaseException as error:
        with suppress(Exception):  # report the first error, not this one
            last = ingest.finish(complete=False, stopped=str(error) or repr(error))
            writer.close(annotate(last))
        raise
    stopped = stream.stopped
    return writer.close(annotate(ingest.finish(complete=stopped is None, stopped=stopped)))
