# SPDX-License-Identifier: Apache-2.0
"""Greenup, powerup and speedup of one attribution over another (GPS-UP).

Abdulsalam, Zong, Gu and Qiu, "Using the Greenup, Powerup, and Speedup metrics to evaluate software
energy efficiency", IGSC 2015. Speedup S = T_base / T_new, greenup G = E_base / E_new,
powerup P = P_new / P_base = S / G.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Interval = tuple[float, float]

#: The category in words, by its first word and its power; the paper has eight.
_WORDS = {
    ("green: faster", "less power"): "saves energy: runs shorter, at less power",
    ("green: faster", "equal power"): "saves energy: runs shorter, at equal power",
    ("green: faster", "more power"): "saves energy: shorter by more than its extra power costs",
    ("green: slower", "less power"): "saves energy: its lower power outweighs the longer run",
    ("red: faster", "more power"): "costs energy: its extra power outweighs the shorter run",
    ("red: slower", "less power"): "costs energy: the longer run outweighs its lower power",
    ("red: slower", "equal power"): "costs energy: runs longer, at equal power",
    ("red: slower", "more power"): "costs energy: runs longer, at more power",
}


@dataclass(frozen=True)
class Form:
    """One form of a query: per call joules and latency with 95 % intervals; None is unknown.

    `loss_share`: the share of its joules by which lost records may have changed them, at 95 %.
    `same_total_ci95`: the interval of its joules without the error of the total; None: not known.
    `keys`: grouping keys besides the fingerprint; they are part of `name`. `latency_parts_ns`: what
    the mean latency consists of, by part; empty: not recorded.
    """

    name: str
    shape: str
    calls: int
    j_per_call: float | None
    j_per_call_ci95: Interval | None
    latency_ns_mean: float | None
    latency_ns_ci95: Interval | None = None
    loss_share: float = 0.0
    same_total_ci95: Interval | None = None
    keys: dict[str, str] = field(default_factory=dict)
    latency_parts_ns: dict[str, float] = field(default_factory=dict)


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
    """Ratios with intervals. The ends are combined at their worst, as errors may be correlated."""
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
    """The new form's place in the plane of the paper, or which part of it is not separable.

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


def latency_change(base: Form, new: Form) -> tuple[str, float] | None:
    """The part of the latency that changed most, and by how many ns per call.

    None: no part has changed, or they are not known.
    """
    old_parts, new_parts = base.latency_parts_ns, new.latency_parts_ns
    changes = [
        (part, new_parts[part] - ns)
        for part, ns in old_parts.items()
        if new_parts.get(part, ns) != ns
    ]
    return max(changes, key=lambda change: abs(change[1]), default=None)


def in_words(category: str) -> str:
    """A category as a sentence for people; parts that are not separable are left out.

    >>> in_words("green: faster, more power")
    'saves energy: shorter by more than its extra power costs'
    >>> in_words("red: pace not separable, power not separable")
    'costs energy'
    """
    begin, _, power = category.partition(", ")
    if sentence := _WORDS.get((begin, power)):
        return sentence
    energy = {"green": "saves energy", "red": "costs energy"}.get(begin.partition(":")[0])
    if energy is None:
        return category
    separable = [word for word in (begin.partition(": ")[2], power) if "not separable" not in word]
    return f"{energy}: {', '.join(filter(None, separable))}".rstrip(": ")


def match(
    base: Sequence[Form], new: Sequence[Form], pairs: Sequence[tuple[str, str]] = ()
) -> list[tuple[Form, Form]]:
    """Forms of the same name, in the order of `base`; or exactly the named pairs.

    Raises `KeyError` with a name in a pair that does not exist.
    """
    base_forms = {form.name: form for form in base}
    new_forms = {form.name: form for form in new}
    if not pairs:
        return [(form, new_forms[name]) for name, form in base_forms.items() if name in new_forms]
    for name, forms in [(a, base_forms) for a, _ in pairs] + [(b, new_forms) for _, b in pairs]:
        if name not in forms:
            raise KeyError(name)
    return [(base_forms[a], new_forms[b]) for a, b in pairs]


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over and under else None


def _ratio_ci(over: Interval | float | None, under: Interval | None) -> Interval | None:
    if not isinstance(over, tuple) or under is None:
        return None
    low = over[0] / under[1] if under[1] > 0 else 0.0
    return (low, over[1] / under[0]) if under[0] > 0 else (low, float("inf"))
