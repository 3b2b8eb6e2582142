# SPDX-License-Identifier: Apache-2.0
"""The coefficients of the model, and the defaults where nothing is calibrated."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from qjoule.errors import UsageError
from qjoule.model import IDLE_POLICIES, IdlePolicy
from qjoule.model.arrays import LONG_TAILS_NS, TAILS_NS, TRAFFIC_PER_NS
from qjoule.model.idle_table import IdleTable
from qjoule.model.interval import Z95

__all__ = ("IDLE_POLICIES", "IdlePolicy", "IdleTable")  # beside all that is defined here

#: Relative 95 % error of one owner's weight against the others', without calibration. Busy time
#: alone missed by up to 31.5 % in HaPPy (Zhai et al., USENIX ATC 2014), before SMT was modelled.
DEFAULT_WEIGHT_ERROR = 0.30
#: Relative 95 % error of a total that does not state its own. A published idle-to-full curve of
#: another machine can be wrong by half. A package counter has no error here: it is the reference
#: for all figures.
TOTAL_ERROR = {"measured": 0.0, "simulated": 0.0, "estimated": 0.50, "none": 0.0}
#: Weight of time shared with a busy SMT sibling (HaPPy, USENIX ATC 2014: about 0.55 each).
DEFAULT_ALPHA = 0.55
#: Cost of a cycle, instruction or ns on a small core, relative to a large one. Of an RK3399's cores
#: a cycle costs 100 and 436 at equal voltage (`dynamic-power-coefficient` in its devicetree,
#: arch/arm64/boot/dts/rockchip); these do less in a cycle than small cores of servers do.
DEFAULT_SMALL = 0.35

#: Terms of the weights, in the order of vectors and covariances.
WEIGHT_TERMS = ("a", "b", "c", "t", "v", "alpha", "k", "beta", "e")
#: What each of `arrays.EFFECTS` costs: nJ per miss, W during a tail, nJ per wake-up, W of a package
#: that another one keeps awake.
EFFECT_TERMS = (
    *(f"u{i}" for i in range(len(TRAFFIC_PER_NS))),
    *(f"p{i}" for i in range(len(TAILS_NS))),
    *(f"q{i}" for i in range(len(TAILS_NS))),
    *("wp", "wc", "kept"),
    *(f"p{i}" for i in range(len(TAILS_NS), len(TAILS_NS) + len(LONG_TAILS_NS))),
)
THETA = (*WEIGHT_TERMS, *EFFECT_TERMS)
#: The terms of calibrations from before small cores and long tails.
_EARLIER = (*WEIGHT_TERMS[:-1], *EFFECT_TERMS[: EFFECT_TERMS.index("wc") + 1])
#: Terms that are ratios, independent of the unit of power.
RATIOS = ("alpha", "k", "beta", "e")
#: Number of terms in calibrations of the first release.
_FIRST_TERMS = 7

DomainKey = tuple[int, str]  #: (package, domain)


class PowerInterval(NamedTuple):
    """Watts with a 95 % interval."""

    value_w: float
    low_w: float
    high_w: float

    @property
    def sigma_w(self) -> float:
        """Standard error that the interval stands for."""
        return (self.high_w - self.low_w) / (2 * Z95)


@dataclass(frozen=True)
class Terms:
    """The values of `THETA`, in that order.

    w = [(1 - o) + o * alpha] * (a*cycles + v*cycles*f**2 + t*cpu_ns)
        + [(1 - o) + o * beta] * (b*instructions + c*misses)

    o is the share of a segment with the SMT sibling busy; f = cycles / cpu_ns is its frequency
    in GHz. Two siblings share their core's clock, so alpha applies to the clock's cost. The cost
    of an instruction or a miss hardly depends on the sibling: beta is near 1. On small cores a, b,
    t and v are e times as much. n busy cores together draw 1 / (1 + k*n) of the sum of w: power is
    concave in load.

    The others belong to `EFFECTS`. `u0` to `u2`: shared power that follows the misses of the busy
    cores up to each of `TRAFFIC_PER_NS`, in nJ per miss; those of several limits add up. `p0` to
    `p4` and `q0` to `q4`: watts that a package and a core still draw while they have been idle for
    less than each of `TAILS_NS`, `p5` to `p9`: the same of a package and `LONG_TAILS_NS`; those of
    several lengths add up. `wp` and `wc`: nJ per wake-up of a package and of a core. `kept`: watts
    of a package whose cores all sleep while one of another package is busy.
    """

    a: float = 1.0
    b: float = 0.0
    c: float = 0.0
    t: float = 0.0
    v: float = 0.0
    alpha: float = DEFAULT_ALPHA
    k: float = 0.0
    beta: float = 1.0
    e: float = DEFAULT_SMALL
    u0: float = 0.0
    u1: float = 0.0
    u2: float = 0.0
    p0: float = 0.0
    p1: float = 0.0
    p2: float = 0.0
    p3: float = 0.0
    p4: float = 0.0
    q0: float = 0.0
    q1: float = 0.0
    q2: float = 0.0
    q3: float = 0.0
    q4: float = 0.0
    wp: float = 0.0
    wc: float = 0.0
    kept: float = 0.0
    p5: float = 0.0
    p6: float = 0.0
    p7: float = 0.0
    p8: float = 0.0
    p9: float = 0.0

    @property
    def vector(self) -> tuple[float, ...]:
        """Values in the order of `THETA`."""
        return tuple(getattr(self, name) for name in THETA)


@dataclass(frozen=True)
class Weights(Terms):
    """How a domain's energy above rest is divided.

    If `calibrated`, coefficients are in nJ per cycle, instruction, miss, and ns; of defaults only
    the proportions mean anything. `covariance` is that of `vector`, or of its first values in an
    older calibration, which did not know the others. `error` is the relative 95 %
    error of a weight that the counters leave unexplained. Raises `UsageError` if a value is
    negative or not finite.
    """

    covariance: tuple[tuple[float, ...], ...] = ()
    error: float = DEFAULT_WEIGHT_ERROR
    calibrated: bool = False

    def __post_init__(self) -> None:
        _check({name: getattr(self, name) for name in (*THETA, "error")})
        if not (self.a or self.b or self.c or self.t or self.v):
            raise UsageError("coefficients a, b, c, t and v are all 0: one must be positive")
        flat = [value for row in self.covariance for value in row]
        size = len(self.covariance)
        square = all(len(row) == size for row in self.covariance)
        if (
            size not in (0, _FIRST_TERMS, len(THETA))
            or not square
            or not all(map(math.isfinite, flat))
        ):
            raise UsageError("the covariance of the coefficients is no square of numbers")


@dataclass(frozen=True)
class Coefficients(Terms):
    """The power coefficients of one machine. Keys of the dicts are (package, domain).

    The `Terms` are those of the main domain (package). `others` holds those of other domains,
    where known. `idle_w`: power at rest. `shared_w`: power drawn once while
    any CPU of the package is busy. `weight_error`: relative 95 % error of one owner's weight.
    Raises `UsageError` if a value is negative or not finite.
    """

    idle_w: dict[DomainKey, PowerInterval] = field(default_factory=dict)
    shared_w: dict[DomainKey, float] = field(default_factory=dict)
    shared_error_w: dict[DomainKey, float] = field(default_factory=dict)  #: standard error
    weight_error: float = DEFAULT_WEIGHT_ERROR
    held_out_error: float | None = None
    calibrated: bool = False
    covariance: tuple[tuple[float, ...], ...] = ()
    others: dict[str, Weights] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self.main_weights  # checked as they are made
        values = {f"shared_w of {key}": w for key, w in self.shared_w.items()}
        values |= {f"shared_error_w of {key}": w for key, w in self.shared_error_w.items()}
        for key, power in self.idle_w.items():
            values |= {f"idle_w of {key}": w for w in power}
            if not power.low_w <= power.value_w <= power.high_w:
                raise UsageError(f"idle_w of {key} lies outside its interval")
        if self.held_out_error is not None:
            values["held_out_error"] = self.held_out_error
        _check(values)

    @cached_property
    def main_weights(self) -> Weights:
        """The main domain's weights."""
        return Weights(
            **{name: getattr(self, name) for name in THETA},
            covariance=self.covariance,
            error=self.weight_error,
            calibrated=self.calibrated,
        )

    def of(self, domain: str, *, counters: bool = True) -> Weights:
        """Weights of a domain; by default, DRAM goes by LLC misses.

        Without `counters`, only time is used: weights that were fitted to time alone are in
        `others` as "package/time".
        """
        name = domain if counters else f"{domain}/time"
        if name in self.others:
            return self.others[name]
        main = self.main_weights
        if not counters:
            only_time = domain != "dram" and not (main.a or main.b or main.c or main.v)
            return main if only_time else Weights(a=0.0, t=1.0, alpha=main.alpha, error=main.error)
        if domain == "dram":
            return Weights(a=0.0, c=1.0, error=main.error)
        return main

    def to_json_dict(self) -> dict[str, Any]:
        """Plain lists, dicts and numbers; `from_json_dict` makes the same object of them."""
        values = asdict(self)
        for name in ("idle_w", "shared_w", "shared_error_w"):
            rows = sorted(getattr(self, name).items())
            values[name] = [
                {"package": p, "domain": d, "value": list(v) if name == "idle_w" else v}
                for (p, d), v in rows
            ]
        return values

    @classmethod
    def from_json_dict(cls, values: Any) -> Coefficients:
        """The inverse of `to_json_dict`. Raises `UsageError` for anything that it did not make."""
        if not isinstance(values, dict):
            raise UsageError("these are no coefficients: not a table of names and values")
        try:
            names_of = {item.name for item in fields(cls)}
            if unknown := sorted(set(values) - names_of):
                raise UsageError(f"no such coefficient: {', '.join(map(str, unknown))}")
            fields_of = dict(values)
            for name in ("idle_w", "shared_w", "shared_error_w"):
                rows = [
                    ((int(row["package"]), str(row["domain"])), row["value"])
                    for row in fields_of.get(name, [])
                ]
                fields_of[name] = {
                    key: PowerInterval(*map(float, value)) if name == "idle_w" else float(value)
                    for key, value in rows
                }
            fields_of["others"] = {
                str(name): Weights(**_weights(other))
                for name, other in fields_of.get("others", {}).items()
            }
            return cls(**_weights(fields_of))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise UsageError(f"these are no coefficients: {error}") from error


def _weights(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers as floats, the covariance as tuples."""
    converted: dict[str, Any] = {
        name: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
        for name, value in values.items()
    }
    for name, value in converted.items():
        if isinstance(value, str):
            raise ValueError(f"{name} is a text")
    rows = converted.get("covariance", ())
    converted["covariance"] = _of_all_terms(
        tuple(tuple(float(value) for value in row) for row in rows)
    )
    return converted


def _of_all_terms(rows: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    """The covariance extended to all present terms; terms that an older calibration lacks have
    zeros."""
    size = len(_EARLIER)
    if len(rows) != size or any(len(row) != size for row in rows):
        return rows
    covariance = np.zeros((len(THETA), len(THETA)))
    index = [THETA.index(name) for name in _EARLIER]
    covariance[np.ix_(index, index)] = rows
    return tuple(map(tuple, covariance.tolist()))


def _check(values: dict[str, float]) -> None:
    for name, value in values.items():
        if not math.isfinite(value) or value < 0:
            raise UsageError(f"coefficient {name} is {value}: it must be finite and >= 0")
