# SPDX-License-Identifier: Apache-2.0
"""Runs of a workload as attributed, with known truth and run-to-run spread."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qjoule.model.compared import Sides, compare_sides
from qjoule.model.gpsup import Form, match
from qjoule.model.repeated import MadeWith, RunForms

MADE_WITH = MadeWith("estimated", "separate", "estimated package", "box, CPU", "of box, 2026")
#: Relative 95 % error of each run's interval: the model's and the total's, the same in all runs.
OWN_ERROR = 0.58


@dataclass(frozen=True)
class Workload:
    """Statements with their true joules and latency per call, and how much runs vary.

    Attributes:
        spread: relative standard deviation between runs, of energy and of latency.
        together: share of the variance common to all statements of a run (a warm machine).
        tail: `normal`, or `skewed`: some runs are much slower than most.
    """

    j_per_call: tuple[float, ...] = (0.002, 0.01, 0.05, 0.0004, 0.3)
    latency_ns: tuple[float, ...] = (1e6, 5e6, 2e7, 2e5, 1e8)
    spread: float = 0.04
    together: float = 0.3
    tail: str = "normal"

    def runs(
        self,
        rng: np.random.Generator,
        count: int,
        *,
        mispriced: Sequence[float] = (),
        factor: float = 1.0,
        side: str = "a",
    ) -> list[RunForms]:
        """Runs of one side."""
        size = len(self.j_per_call)
        wrong = np.asarray(mispriced or np.ones(size))
        sides = []
        for number in range(count):
            energy = np.array(self.j_per_call) * wrong * factor * self._noise(rng, size)
            latency = np.array(self.latency_ns) * self._noise(rng, size)
            forms = [
                Form(f"fp{i}", f"select {i}", 1000, float(j), _ends(float(j)), float(ns))
                for i, (j, ns) in enumerate(zip(energy, latency, strict=True))
            ]
            start = f"2026-01-{number + 1:02d}T00:00:{'00' if side == 'a' else '30'}Z"
            sides.append(RunForms(f"{side}{number}", forms, MADE_WITH, start, 60.0))
        return sides

    def _noise(self, rng: np.random.Generator, size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        if self.tail == "skewed":
            z = rng.exponential(1.0, size + 1) - 1
        else:
            z = rng.normal(0, 1, size + 1)
        noise = np.sqrt(self.together) * z[-1] + np.sqrt(1 - self.together) * z[:-1]
        factors: np.ndarray[Any, np.dtype[np.float64]] = np.exp(self.spread * noise)
        return factors


def _ends(joules: float) -> tuple[float, float]:
    return joules * (1 - OWN_ERROR), joules * (1 + OWN_ERROR)


def mispricing(rng: np.random.Generator, statements: int = 5) -> list[float]:
    """The model's error of each statement (sigma 15 %), times the error of the total (25 %)."""
    return [float(f) for f in np.exp(rng.normal(0, 0.15, statements) + rng.normal(0, 0.25))]


def compared(a: list[RunForms], b: list[RunForms]) -> Sides:
    """Every statement that both sides have."""
    return compare_sides(a, b, match(a[0].forms, b[0].forms))


def says_different(sides: Sides) -> bool:
    """True if the comparison reports a difference in energy, pace or power for any statement."""
    claims = ("green", "red", "faster", "slower", "more power", "less power")
    return any(word in row.category for row in sides.rows for word in claims)


def write_json(path: Path, run: RunForms, **changed: Any) -> Path:
    """The run as `qjoule attribute --format json` would write it; `changed` replaces parts."""
    document: dict[str, Any] = {
        "schema": "qjoule.attribution/1",
        "trace": {
            "host": "box",
            "kernel": "6.1",
            "cpu": "CPU",
            "start": run.start,
            "duration_s": run.duration_s,
            "complete": True,
            "loss": {},
            "lost_cpu_ns": 0,
        },
        "energy_source": {
            "name": "estimated",
            "grade": "estimated",
            "main_domain": "package",
        },
        "policy": {"idle": "separate", "by": "fingerprint"},
        "model": {"weight": "cpu_time", "calibration": ""},
        "rows": [
            {
                "fingerprint": form.name,
                "shape": form.shape,
                "calls": form.calls,
                "energy_j": None if form.j_per_call is None else form.j_per_call * form.calls,
                "j_per_call": form.j_per_call,
                "j_per_call_ci95": form.j_per_call_ci95,
                "latency_ns_mean": form.latency_ns_mean,
            }
            for form in run.forms
        ],
    }
    for key, value in changed.items():
        document[key] = {**document[key], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(document))
    return path


def write_runs(folder: Path, runs: Sequence[RunForms], **changed: Any) -> list[Path]:
    """Writes one file for each run, by the run's name."""
    return [write_json(folder / f"{run.name}.json", run, **changed) for run in runs]
