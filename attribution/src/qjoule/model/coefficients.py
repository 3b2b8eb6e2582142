"""Coefficients of the model, and what is assumed where nothing is calibrated."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from qjoule.errors import UsageError

IdlePolicy = Literal["separate", "even", "proportional"]
IDLE_POLICIES: tuple[IdlePolicy, ...] = ("separate", "even", "proportional")

#: Relative 95 % error of one owner's weight against the others', without calibration. Busy time
#: alone missed by up to 31.5 % in HaPPy (Zhai et al., USENIX ATC 2014), before SMT was modelled.
DEFAULT_WEIGHT_ERROR = 0.30
#: Relative 95 % error of the total itself. A published idle-to-full curve of another machine can
#: miss by half; a package counter is the reference that figures are apportioned from.
TOTAL_ERROR = {"measured": 0.0, "simulated": 0.0, "estimated": 0.50, "none": 0.0}


class PowerInterval(NamedTuple):
    """Watts with a 95 % interval."""

    value_w: float
    low_w: float
    high_w: float


@dataclass(frozen=True)
class Coefficients:
    """Weight of a segment, [(1 - o) + o * alpha] * (a*cycles + b*instructions + c*misses).

    `o` is the share of the segment with the SMT sibling busy. `idle_w` is keyed by (package,
    domain), `shared_w` likewise: power drawn once while any CPU of the package is busy.
    Raises `UsageError` if a value is negative or not finite.
    """

    a: float = 1.0
    b: float = 0.0
    c: float = 0.0
    alpha: float = 0.55
    idle_w: dict[tuple[int, str], PowerInterval] = field(default_factory=dict)
    shared_w: dict[tuple[int, str], float] = field(default_factory=dict)
    weight_error: float = DEFAULT_WEIGHT_ERROR  #: relative, 95 %
    held_out_error: float | None = None
    calibrated: bool = False

    def __post_init__(self) -> None:
        plain = {"a": self.a, "b": self.b, "c": self.c, "alpha": self.alpha}
        plain["weight_error"] = self.weight_error
        plain |= {f"shared_w of {key}": w for key, w in self.shared_w.items()}
        for key, power in self.idle_w.items():
            plain |= {f"idle_w of {key}": w for w in power}
            if not power.low_w <= power.value_w <= power.high_w:
                raise UsageError(f"idle_w of {key} lies outside its interval")
        for name, value in plain.items():
            if not math.isfinite(value) or value < 0:
                raise UsageError(f"coefficient {name} is {value}: it must be finite and >= 0")
        if self.a == self.b == self.c == 0:
            raise UsageError("coefficients a, b and c are all 0: one must be positive")
