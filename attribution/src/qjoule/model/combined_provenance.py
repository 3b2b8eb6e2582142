# SPDX-License-Identifier: Apache-2.0
"""Where the figures of several traces come from, and how the traces differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from qjoule.model.result import Attribution, EnergySource, ModelInfo, TraceInfo, TracePart

#: Grades from the least to the most trustworthy: a sum has the worst grade of its parts.
GRADES = ("none", "simulated", "estimated", "measured")
MIXED = "mixed"  #: weight of a sum whose parts used different weights


def trace_of(traces: Sequence[TraceInfo]) -> TraceInfo:
    """The joined trace: complete if all are; its duration is the time covered by any of them."""
    return TraceInfo(
        host=_names(trace.host for trace in traces),
        kernel=_names(trace.kernel for trace in traces),
        cpu=_names(trace.cpu for trace in traces),
        start=min((trace.start for trace in traces if trace.start), default=""),
        duration_s=_covered_s(traces),
        complete=all(trace.complete for trace in traces),
        loss=counts(trace.loss for trace in traces),
        lost_cpu_ns=sum(trace.lost_cpu_ns for trace in traces),
        changes=tuple(change for trace in traces for change in trace.changes),
        throttled="; ".join(dict.fromkeys(trace.throttled for trace in traces if trace.throttled)),
    )


def source_of(parts: Sequence[TracePart], names: tuple[str, ...]) -> EnergySource:
    """`names`: the domains that are summed, the main one first."""
    sources = [part.attribution.energy_source for part in parts]
    worst = min((source.grade for source in sources), key=_trust)
    return EnergySource(
        name=_names(source.name for source in sources),
        grade=worst if names else "none",
        reason=sources[0].reason if len(sources) == 1 else "",
        domains=names,
        main_domain=names[0] if names else "",
        total_error=max((source.total_error for source in sources), default=0.0) if names else 0.0,
        left_out={name: reason for source in sources for name, reason in source.left_out.items()},
        other_errors={
            name: max(source.other_errors.get(name, 0.0) for source in sources)
            for name in names[1:]
            if any(name in source.other_errors for source in sources)
        },
        cores=sources[0].cores if all(source.cores for source in sources) else "",
    )


def model_of(parts: Sequence[TracePart], names: Sequence[str], notes: Sequence[str]) -> ModelInfo:
    """The model of a sum, without coefficients: each machine's stay with its part."""
    models = [part.attribution.model for part in parts]
    if len(models) == 1:
        return replace(models[0], notes=(*models[0].notes, *notes))
    weights = {model.weight for model in models}
    origins = {model.calibration for model in models}
    notes_by_trace = _notes_by_trace(parts, lambda result: result.model.notes)
    flags = _notes_by_trace(parts, lambda result: result.model.calibration_flags)
    return ModelInfo(
        weight=weights.pop() if len(weights) == 1 else MIXED,
        coefficients={},
        calibrated=all(model.calibrated for model in models),
        held_out_error=None,
        notes=(
            *_differences(parts, names),
            *notes,
            *(
                f"{trace_names}: {note}" if trace_names else note
                for note, trace_names in notes_by_trace
            ),
        ),
        calibration=origins.pop() if len(origins) == 1 else "",
        calibration_flags=tuple(
            f"{flag} ({trace_names})" if trace_names else flag for flag, trace_names in flags
        ),
    )


def counts(all_counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts by name, added up."""
    total: Counter[str] = Counter()
    for trace_counts in all_counts:
        total.update(trace_counts)
    return dict(sorted(total.items()))


def _differences(parts: Sequence[TracePart], names: Sequence[str]) -> list[str]:
    """Notes on differences in hosts, grades, calibration, weights and energy domains."""
    notes = [
        *_differing(parts, "hosts", lambda result: result.trace.host or "unknown"),
        *_differing(parts, "grades", lambda result: result.energy_source.grade),
        *_differing(
            parts,
            "models",
            lambda result: "calibrated" if result.model.calibrated else "not calibrated",
        ),
        *_differing(parts, "weights", lambda result: result.model.weight.replace("_", " ")),
    ]
    without = [part.name for part in parts if not part.attribution.domains]
    if without:
        notes.append(f"no energy in {', '.join(without)}: the sum of joules is not known")
    elif not names:
        notes.append("the traces have no energy domain in common: the sum of joules is not known")
    if names:
        all_domains = {domain.name for part in parts for domain in part.attribution.domains}
        for name in sorted(all_domains - set(names)):
            having = [p.name for p in parts if name in {d.name for d in p.attribution.domains}]
            notes.append(f"{name} was counted in {', '.join(having)} only: it is in no sum")
    return notes


def _differing(
    parts: Sequence[TracePart], property_name: str, value_of: Callable[[Attribution], str]
) -> list[str]:
    by_value: dict[str, list[str]] = {}
    for part in parts:
        by_value.setdefault(value_of(part.attribution), []).append(part.name)
    if len(by_value) < 2:
        return []
    named = "; ".join(f"{value} ({', '.join(by_value[value])})" for value in sorted(by_value))
    return [f"{property_name} differ: {named}"]


def _notes_by_trace(
    parts: Sequence[TracePart], notes_of: Callable[[Attribution], Sequence[str]]
) -> list[tuple[str, str]]:
    """Notes and the names of the traces that each applies to (empty: all)."""
    names_by_note: dict[str, list[str]] = {}
    for part in parts:
        for note in notes_of(part.attribution):
            names_by_note.setdefault(note, []).append(part.name)
    return [
        (note, "" if len(names) == len(parts) else ", ".join(names))
        for note, names in names_by_note.items()
    ]


def _covered_s(traces: Sequence[TraceInfo]) -> float:
    """Seconds covered by at least one trace. If a start is unknown, durations are added up."""
    spans = []
    for trace in traces:
        try:
            begin_s = datetime.fromisoformat(trace.start).timestamp()
        except (ValueError, OverflowError):
            return sum(sorted(trace.duration_s for trace in traces))
        spans.append((begin_s, begin_s + trace.duration_s))
    covered_s, until_s = 0.0, float("-inf")
    for begin_s, end_s in sorted(spans):
        covered_s += max(end_s - max(begin_s, until_s), 0.0)
        until_s = max(until_s, end_s)
    return covered_s


def _trust(grade: str) -> int:
    return GRADES.index(grade) if grade in GRADES else 0


def _names(values: Iterable[str]) -> str:
    return ", ".join(sorted({value for value in values if value}))
