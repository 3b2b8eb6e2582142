"""Windows of a calibration run to the coefficients of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qjoule.model.arrays import WindowBatch
from qjoule.model.coefficients import Coefficients
from qjoule.model.counters import Series


@dataclass(frozen=True)
class Phase:
    """A stretch of a calibration run: `threads` kernels `name` ran; `smt`: two on each core."""

    name: str
    t0_ns: int
    t1_ns: int
    threads: int
    smt: bool


@dataclass(frozen=True)
class Identified:
    """A coefficient with its 95 % interval; `why` says what kept it from being told."""

    value: float
    low: float
    high: float
    ok: bool
    why: str = ""


@dataclass(frozen=True)
class CalibrationFit:
    """`held_out_error`: per domain, relative, of windows of kernels that were not fitted."""

    coefficients: Coefficients
    held_out_error: dict[str, float]
    identified: dict[str, Identified]
    notes: tuple[str, ...] = ()


def fit_calibration(
    batches: Sequence[WindowBatch], series: Sequence[Series], phases: Sequence[Phase]
) -> CalibrationFit:
    """Fits all coefficients that the phases can tell, with what each of them rests on."""
    raise NotImplementedError
