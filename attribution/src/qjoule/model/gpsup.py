"""Greenup, powerup and speedup of one attribution over another (GPS-UP).

Abdulsalam, Zong, Gu and Qiu, "Using the Greenup, Powerup, and Speedup metrics to evaluate software
energy efficiency", IGSC 2015. Speedup S = T_base / T_new, greenup G = E_base / E_new,
powerup P = P_new / P_base = S / G.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Interval = tuple[float, float]


@dataclass(frozen=True)
class Form:
    """One form of a query: per call joules and latency with 95 % intervals; None is unknown."""

    name: str
    shape: str
    calls: int
    j_per_call: float | None
    j_per_call_ci95: Interval | None
    latency_ns_mean: float | None
    latency_ns_ci95: Interval | None = None


@dataclass(frozen=True)
class Comparison:
    """`new` against `base`. A ratio is None where one of its figures is unknown or zero."""

    base: Form
    new: Form
    speedup: float | None
    greenup: float | None
    powerup: float | None
    speedup_ci95: Interval | None
    greenup_ci95: Interval | None
    powerup_ci95: Interval | None
    category: str


def compare(base: Form, new: Form) -> Comparison:
    """Ratios with intervals. Ends of an interval combine ends: the errors may be anything alike."""
    speedup = _ratio(base.latency_ns_mean, new.latency_ns_mean)
    greenup = _ratio(base.j_per_call, new.j_per_call)
    speedup_ci = _ratio_ci(base.latency_ns_ci95, new.latency_ns_ci95)
    greenup_ci = _ratio_ci(base.j_per_call_ci95, new.j_per_call_ci95)
    return Comparison(
        base,
        new,
        speedup,
        greenup,
        _ratio(speedup, greenup),
        speedup_ci,
        greenup_ci,
        _ratio_ci(speedup_ci or (speedup and (speedup, speedup)), greenup_ci),
        category(speedup, greenup, greenup_ci),
    )


def category(
    speedup: float | None, greenup: float | None, greenup_ci95: Interval | None = None
) -> str:
    """Where the new form lies in the plane of the paper, or that it cannot be told.

    Greenup saves energy (G > 1): green, and faster or slower; otherwise red. Faster at more power
    than the speedup pays for is red.
    """
    if speedup is None or greenup is None:
        return "unknown"
    if greenup_ci95 and greenup_ci95[0] <= 1 <= greenup_ci95[1]:
        return "energy not separable"
    pace = "faster" if speedup > 1 else "slower" if speedup < 1 else "as fast"
    power = speedup / greenup
    draw = "more power" if power > 1 else "less power" if power < 1 else "equal power"
    return f"{'green' if greenup > 1 else 'red'}: {pace}, {draw}"


def match(
    base: Sequence[Form], new: Sequence[Form], pairs: Sequence[tuple[str, str]] = ()
) -> list[tuple[Form, Form]]:
    """Forms of the same name, in the order of `base`; or exactly the named pairs.

    Raises `KeyError` with a name that a pair asks for and that is not there.
    """
    old = {form.name: form for form in base}
    later = {form.name: form for form in new}
    if not pairs:
        return [(form, later[name]) for name, form in old.items() if name in later]
    for name, forms in [(a, old) for a, _ in pairs] + [(b, later) for _, b in pairs]:
        if name not in forms:
            raise KeyError(name)
    return [(old[a], later[b]) for a, b in pairs]


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over and under else None


def _ratio_ci(over: Interval | float | None, under: Interval | None) -> Interval | None:
    if not isinstance(over, tuple) or under is None:
        return None
    low = over[0] / under[1] if under[1] > 0 else 0.0
    return (low, over[1] / under[0]) if under[0] > 0 else (low, float("inf"))
