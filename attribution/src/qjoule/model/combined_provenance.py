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
    """Joins all of them: complete if all are; its duration is the time with any of them
    recorded."""
    return TraceInfo(
        host=_names(one.host for one in traces),
        kernel=_names(one.kernel for one in traces),
        cpu=_names(one.cpu for one in traces),
        start=min((one.start for one in traces if one.start), default=""),
        duration_s=_covered_s(traces),
        complete=all(one.complete for one in traces),
        loss=counts(one.loss for one in traces),
        lost_cpu_ns=sum(one.lost_cpu_ns for one in traces),
        changes=tuple(change for one in traces for change in one.changes),
    )


def source_of(parts: Sequence[TracePart], names: tuple[str, ...]) -> EnergySource:
    """`names`: the domains that are summed, the main one first."""
    sources = [part.attribution.energy_source for part in parts]
    worst = min((one.grade for one in sources), key=_trust)
    return EnergySource(
        name=_names(one.name for one in sources),
        grade=worst if names else "none",
        reason=sources[0].reason if len(sources) == 1 else "",
        domains=names,
        main_domain=names[0] if names else "",
        total_error=max((one.total_error for one in sources), default=0.0) if names else 0.0,
        left_out={name: why for one in sources for name, why in one.left_out.items()},
        other_errors={
            name: max(one.other_errors.get(name, 0.0) for one in sources)
            for name in names[1:]
            if any(name in one.other_errors for one in sources)
        },
        cores=sources[0].cores if all(one.cores for one in sources) else "",
    )


def model_of(parts: Sequence[TracePart], names: Sequence[str], notes: Sequence[str]) -> ModelInfo:
    """Whether all were calibrated. Each machine's coefficients stay with its part."""
    models = [part.attribution.model for part in parts]
    if len(models) == 1:
        return replace(models[0], notes=(*models[0].notes, *notes))
    weights = {one.weight for one in models}
    origins = {one.calibration for one in models}
    said = _said(parts, lambda one: one.model.notes)
    flags = _said(parts, lambda one: one.model.calibration_flags)
    return ModelInfo(
        weight=weights.pop() if len(weights) == 1 else MIXED,
        coefficients={},
        calibrated=all(one.calibrated for one in models),
        held_out_error=None,
        notes=(
            *_differences(parts, names),
            *notes,
            *(f"{of}: {note}" if of else note for note, of in said),
        ),
        calibration=origins.pop() if len(origins) == 1 else "",
        calibration_flags=tuple(f"{flag} ({of})" if of else flag for flag, of in flags),
    )


def counts(all_counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts by name, added up."""
    total: Counter[str] = Counter()
    for one in all_counts:
        total.update(one)
    return dict(sorted(total.items()))


def _differences(parts: Sequence[TracePart], names: Sequence[str]) -> list[str]:
    """Notes on differences in hosts, grades, calibration, weights and energy domains."""
    notes = [
        *_differing(parts, "hosts", lambda one: one.trace.host or "unknown"),
        *_differing(parts, "grades", lambda one: one.energy_source.grade),
        *_differing(
            parts, "models", lambda one: "calibrated" if one.model.calibrated else "not calibrated"
        ),
        *_differing(parts, "weights", lambda one: one.model.weight.replace("_", " ")),
    ]
    without = [part.name for part in parts if not part.attribution.domains]
    if without:
        notes.append(f"no energy in {', '.join(without)}: the sum of joules is not known")
    elif not names:
        notes.append("the traces have no energy domain in common: the sum of joules is not known")
    if names:
        every = {domain.name for part in parts for domain in part.attribution.domains}
        for name in sorted(every - set(names)):
            having = [p.name for p in parts if name in {d.name for d in p.attribution.domains}]
            notes.append(f"{name} was counted in {', '.join(having)} only: it is in no sum")
    return notes


def _differing(
    parts: Sequence[TracePart], what: str, value_of: Callable[[Attribution], str]
) -> list[str]:
    by_value: dict[str, list[str]] = {}
    for part in parts:
        by_value.setdefault(value_of(part.attribution), []).append(part.name)
    if len(by_value) < 2:
        return []
    named = "; ".join(f"{value} ({', '.join(by_value[value])})" for value in sorted(by_value))
    return [f"{what} differ: {named}"]


def _said(
    parts: Sequence[TracePart], notes_of: Callable[[Attribution], Sequence[str]]
) -> list[tuple[str, str]]:
    """(note, the traces it applies to; empty: all)."""
    found: dict[str, list[str]] = {}
    for part in parts:
        for note in notes_of(part.attribution):
            found.setdefault(note, []).append(part.name)
    return [
        (note, "" if len(names) == len(parts) else ", ".join(names))
        for note, names in found.items()
    ]


def _covered_s(traces: Sequence[TraceInfo]) -> float:
    """How long any of them was recorded. If a start is not known, durations are added up."""
    spans = []
    for one in traces:
        try:
            begin_s = datetime.fromisoformat(one.start).timestamp()
        except (ValueError, OverflowError):
            return sum(sorted(trace.duration_s for trace in traces))
        spans.append((begin_s, begin_s + one.duration_s))
    covered_s, until_s = 0.0, float("-inf")
    for begin_s, end_s in sorted(spans):
        covered_s += max(end_s - max(begin_s, until_s), 0.0)
        until_s = max(until_s, end_s)
    return covered_s


def _trust(grade: str) -> int:
    return GRADES.index(grade) if grade in GRADES else 0


def _names(values: Iterable[str]) -> str:
    return ", ".join(sorted({value for value in values if value}))
