# SPDX-License-Identifier: Apache-2.0
"""Makes a trace from perf's files: the steps of `qjoule import perf`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from qjoule.api import QjouleError, UsageError
from qjoule.api.servers import estimate_curve, fingerprint
from qjoule.api.traces import Cpu, Meta, StreamContext, TraceWriter, record
from qjoule.api.traces import Imported as ImportedFrom
from qjoule_studies.import_perf.energy import Counted, Estimated, counted_by, parse_curve
from qjoule_studies.import_perf.header import Header, parse_header
from qjoule_studies.import_perf.lines import Recording, open_recording
from qjoule_studies.import_perf.queries import by_server
from qjoule_studies.import_perf.scan import PROBED, Scan, scan, servers_of
from qjoule_studies.import_perf.stream import PerfStream, Sources
from qjoule_studies.import_perf.tasks import Imported

#: What no import from perf contains; written to `meta.json`.
MISSING = (
    "kernel work in interrupts is with whom they interrupted",
    "hardware counters per query",
    "users, databases, tags, outcomes and rows of queries",
    "texts of prepared statements when they are executed, and of statements beyond 4 KiB",
    *(line for support in by_server().values() for line in support.missing),
)
_ESTIMATED = "estimated"
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class Request:
    """The command's arguments. `energy`: a file, `estimated[:...]` or `none`."""

    path: Path
    energy: str = "none"
    stat_begin_s: str | None = None
    servers: tuple[Imported, ...] = ()
    literals: bool = False


@dataclass(frozen=True)
class Done:
    """What was written, and notes about it for the user, a line each."""

    meta: Meta
    notes: tuple[str, ...]


def import_perf(request: Request, directory: Path) -> Done:
    """Writes the trace. Raises `QjouleError`; what came before a damaged place is kept in an
    incomplete trace.
    """
    recording = open_recording(request.path)
    header = parse_header(recording.header(), recording.name)
    scanned = scan(recording.heads(), recording.name)
    notes = []
    if not header.cpus:
        header = _with_cpus(header, recording)
        notes.append(
            "which CPUs share a package is not known: make the text with --header -I; all are "
            "taken for cores of one package"
        )
    servers = servers_of(request.servers, scanned)
    energy = _energy(request, header, scanned)
    stream = PerfStream(Sources(recording, header, scanned, servers, energy))
    meta = _meta(header, recording, request, servers)
    writer = TraceWriter(directory, meta)
    context = StreamContext(fingerprint, meta)
    written = record(
        stream, writer, context, annotate=lambda meta: _annotated(meta, header, stream)
    )
    return Done(written, (*notes, *_notes(stream, recording, request)))


def _meta(
    header: Header, recording: Recording, request: Request, servers: tuple[Imported, ...]
) -> Meta:
    missing: tuple[str, ...] = MISSING
    if recording.is_text:
        missing += ("whether a statement's text imitates records of perf",)
    return Meta(
        host=header.host,
        kernel=header.kernel,
        cpu=header.cpu,
        literals=request.literals,
        servers=tuple(server.meta for server in servers),
        imported=ImportedFrom("perf", header.version, missing),
    )


def _annotated(meta: Meta, header: Header, stream: PerfStream) -> Meta:
    """Includes the servers whose probes were hit; has no wall clock if perf gives none."""
    servers = tuple(
        replace(server, attach_mode="symbol", reason=PROBED)
        if server.id in stream.queries.hit
        else server
        for server in meta.servers
    )
    offset_ns = meta.realtime_offset_ns if header.realtime_offset_ns is not None else None
    return replace(meta, servers=servers, realtime_offset_ns=offset_ns)


def _with_cpus(header: Header, recording: Recording) -> Header:
    """Fills the header's CPUs from the records."""
    cpus = sorted({head.cpu for head in recording.heads() if head.t_ns})
    return replace(header, cpus=tuple(Cpu(cpu, 0, cpu, cpu) for cpu in cpus))


def _energy(request: Request, header: Header, scanned: Scan) -> Counted | Estimated | None:
    how, _, curve = request.energy.partition(":")
    if how == _ESTIMATED:
        return parse_curve(curve) if curve else _published(header)
    if request.energy == "none":
        return None
    begin_ns = _stat_begin_ns(request, scanned)
    counted = counted_by(Path(request.energy), begin_ns)
    unknown = {domain.package for domain in counted.domains} - {cpu.package for cpu in header.cpus}
    if unknown:
        raise QjouleError(
            f"{request.energy} counts socket {min(unknown)}, which the recording's host has not: "
            "are the two files of one run?"
        )
    packages = {cpu.package for cpu in header.cpus}
    if len(packages) > 1 and {domain.package for domain in counted.domains} != packages:
        raise QjouleError(
            f"{request.energy} counts one of {len(packages)} packages: run perf stat with "
            "--per-socket"
        )
    return counted


def _published(header: Header) -> Estimated:
    processor = header.processor()
    if processor is None:
        raise QjouleError(
            "the recording does not say which CPU its host has: give its watts, "
            "'--energy estimated:W0,W10,W50,W100'"
        )
    curve = estimate_curve(processor)
    estimated = parse_curve(curve.spec)
    return replace(
        estimated,
        why=f"power curve {curve.spec} W ({curve.label}), not measured",
        errors={"package": curve.package.error, "rest": curve.rest.error},
    )


def _stat_begin_ns(request: Request, scanned: Scan) -> int:
    """Raises `UsageError` if the begin of perf stat is unknown."""
    if request.stat_begin_s is not None:
        seconds, _, part = request.stat_begin_s.partition(".")
        if not (seconds.isascii() and seconds.isdigit() and (part or "0").isdigit()):
            raise UsageError("--energy-start is a time of CLOCK_MONOTONIC in seconds")
        return int(seconds) * _NANOSECONDS + int((part or "0")[:9].ljust(9, "0"))
    if scanned.stat_begin_ns is None:
        raise UsageError(
            "when perf stat began is not in the recording: run it as the workload of perf record, "
            "as --print-commands shows, or say --energy-start SECONDS"
        )
    return scanned.stat_begin_ns


def _notes(stream: PerfStream, recording: Recording, request: Request) -> list[str]:
    notes = []
    if request.energy == "none":
        notes.append("no energy: the trace has CPU times only; --energy says where joules are")
    if not stream.queries.hit:
        notes.append("no probe of a server was hit: there are no queries")
    if stream.late:
        notes.append(f"{stream.late} records out of order, taken for as late as those before")
    if stream.unread:
        notes.append(f"{stream.unread} records about threads could not be read")
    if recording.is_text:
        notes.append(
            "a text: a client's statement may imitate records in it; import the perf.data instead "
            "where clients are not trusted"
        )
    return notes
