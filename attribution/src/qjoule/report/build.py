# SPDX-License-Identifier: Apache-2.0
"""Builds a page from traces and studies: the work of `qjoule report` behind its options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qjoule.model.coefficients import IdlePolicy
from qjoule.model.coefficients_used import Calibrated
from qjoule.model.result import PARTS
from qjoule.process import as_given
from qjoule.report.compared import compared
from qjoule.report.gather import Gathered, gather
from qjoule.report.page import page
from qjoule.report.page_data import about, clean, trace_data
from qjoule.report.study import study_data
from qjoule.trace.reader import Trace

SCHEMA = "qjoule.page/1"


@dataclass(frozen=True)
class Options:
    """How queries are grouped, the idle policy, and how many rows are shown."""

    by: tuple[str, ...]
    idle: IdlePolicy
    top: int


@dataclass(frozen=True)
class Built:
    """The page, notes about it, and the figures that it shows, for writing them to files."""

    html: str
    said: str
    data: dict[str, Any]
    traces: dict[str, Gathered]


def build(
    traces: Sequence[tuple[Trace, Calibrated]],
    studies: Sequence[Path],
    options: Options,
    progress: Callable[[int], None] | None = None,
) -> Built:
    """Gathers, compares and renders. Raises `QjouleError` and `UsageError` as the parts do."""
    named = names([trace.path for trace, _ in traces])
    found = {
        name: gather(trace, options.by, options.idle, calibrated=calibrated, progress=progress)
        for name, (trace, calibrated) in zip(named, traces, strict=True)
    }
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "parts": PARTS,
        "traces": [trace_data(name, one, options.top) for name, one in found.items()],
        "comparisons": compared({name: one.attribution for name, one in found.items()}),
        "studies": [study_data(path) for path in studies],
    }
    heads: list[dict[str, Any]] = [about(name, one.attribution) for name, one in found.items()]
    title = clean(" · ".join([*named, *(path.resolve().name for path in studies)]), 200)
    html = page(data, heads, f"{title}: joules")
    grades = {head["grade"] for head in heads}
    grades |= {grade for study in data["studies"] for grade in study["grades"]}
    idle = {head["idle"] for head in heads}
    idle |= {policy for study in data["studies"] for policy in study["idle_policies"]}
    said = f"grade {', '.join(sorted(grades))} · idle {', '.join(sorted(idle))}"
    return Built(html, said, data, found)


def names(paths: Sequence[Path]) -> list[str]:
    """Short and different names: the directories' own, or their paths where two are alike."""
    short = [path.resolve().name for path in paths]
    out: list[str] = []
    for path, name in zip(paths, short, strict=True):
        wanted = name if short.count(name) == 1 else as_given(str(path))
        number = 2
        unique = wanted
        while unique in out:
            unique, number = f"{wanted} ({number})", number + 1
        out.append(unique)
    return out
