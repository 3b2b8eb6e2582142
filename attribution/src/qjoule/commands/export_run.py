# SPDX-License-Identifier: Apache-2.0
"""The implementation of `qjoule export`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from qjoule.commands.attribute_run import request_of
from qjoule.commands.conversion import readable
from qjoule.commands.flame_run import about, divide_over_stacks, notes
from qjoule.commands.option_groups import ResultOptions
from qjoule.engine.flame import Flame
from qjoule.export.otlp import otlp_profiles
from qjoule.export.perfetto import Timeline, perfetto
from qjoule.export.pprof import pprof
from qjoule.export.profile import Profile, samples_of, types_of
from qjoule.export.speedscope import speedscope
from qjoule.export.timeline import query_slices
from qjoule.process import as_given, keep_freed_memory
from qjoule.report.gather import gather
from qjoule.reporters import format as fmt
from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace

#: Buckets of a timeline: 15 ms each in a minute, which is less than a window.
_BUCKETS = 4000


def run(
    form: str, path: Path, result_options: ResultOptions, symfs: Path | None
) -> tuple[bytes, Sequence[str]]:
    """Returns the file, and lines that say what is missing. Raises UsageError and QjouleError."""
    keep_freed_memory()
    trace = Trace(readable([path])[0])
    if form == "perfetto":
        return timeline(trace, result_options)
    stacks = divide_over_stacks(trace, result_options, symfs)
    lines = tuple(notes(stacks))
    profile = profile_of(stacks, trace, Path(as_given(str(path))).name, lines)
    if form == "speedscope":
        return speedscope(profile).encode(), lines
    return pprof(profile) if form == "pprof" else otlp_profiles(profile), lines


def profile_of(flame: Flame, trace: Trace, title: str, lines: tuple[str, ...]) -> Profile:
    """`lines`: notes on the source of the figures."""
    meta = trace.meta
    begin_ns, offset_ns = trace.begin_ns, meta.realtime_offset_ns
    types = types_of(flame.result)
    return Profile(
        fmt.one_line(title),
        fmt.one_line(meta.host),
        0 if offset_ns is None else begin_ns + offset_ns,
        max(trace.end_ns - begin_ns, 0),
        tuple(map(fmt.one_line, lines)),
        types,
        tuple(samples_of(flame.rows, _server_kinds(meta), types, stacks=bool(flame.samples))),
    )


def _server_kinds(meta: Meta) -> dict[str, str]:
    return {server.name or server.kind: server.kind for server in meta.servers}


def timeline(trace: Trace, result_options: ResultOptions) -> tuple[bytes, Sequence[str]]:
    """Does the work of `run` for Perfetto."""
    request = request_of(trace, replace(result_options, by="query"))
    gathered = gather(
        trace,
        request.by,
        request.idle,
        calibrated=request.calibrated,
        where=request.where,
        buckets=_BUCKETS,
    )
    attribution = gathered.attribution
    rows = {int(row.keys["query"]): row for row in attribution.rows if not row.not_selected}
    content = Timeline(
        trace.begin_ns,
        trace.meta.realtime_offset_ns,
        {server.id: server for server in trace.meta.servers},
        (
            query
            for query in query_slices(trace)
            if not result_options.where or query.record["query"] in rows
        ),
        rows,
        gathered.power,
    )
    return perfetto(content), tuple(about(attribution))
