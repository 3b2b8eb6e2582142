# SPDX-License-Identifier: Apache-2.0
"""Where one row's joules and their interval come from, noted down while windows are split.

A `RowWatch` is given to the account of a trace. It takes what the split itself used: the energy of
the row's entries by what it was given for, and the slopes and covariance of the model's error.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.coefficients import EFFECT_TERMS, THETA, WEIGHT_TERMS
from qjoule.model.energy import I64, Bool
from qjoule.model.features import basis
from qjoule.model.fit.rows import ClassOf
from qjoule.model.interval import Z95, RowErrors
from qjoule.model.power_model import PowerModel
from qjoule.model.sensitivity import Portion, Sensitivity, variance_of
from qjoule.model.split import apportion

#: Terms of the weight that are costs; the others scale them.
_COSTS = ("a", "b", "c", "t", "v")
#: What parts of the shared energy are for, by the first letter of their effect.
SHARED = {
    **{"": "awake", "u": "traffic", "p": "package tails", "q": "core tails", "w": "wake-ups"},
    "k": "other packages kept awake",
}
REST = "rest"
#: What of the model an interval comes from.
OWN = "own factor"
SOURCES = ("power at rest", "shared power", "weights", "effects", OWN, "others' factors")
#: What would help, and the sources that it would settle.
REMEDIES = {
    "a minute in which the machine idles": ("power at rest",),
    "qjoule calibrate": ("power at rest", "shared power", "weights", "effects"),
    "a minute in which this row runs alone": (OWN,),
}


@dataclass(frozen=True)
class Explanation:
    """Of one row: `dynamic_nj` by term of the weight, `shared_nj` by `SHARED`, and `rest_nj`, of a
    policy that spreads it. All of them add up to `energy_nj`.

    `windows`: in which it ran, of `windows_all`; `weight`: its part of all weight in these.
    `alone_nj`: half of the interval if each part of it stood alone, largest first. `remedies`: half
    of the interval if one of `REMEDIES` settled what it is about, and `half_nj` as it is.
    `prior`: the standard error of a power factor before any window; `factor_sigma`: what is left.
    """

    energy_nj: int
    dynamic_nj: dict[str, int]
    shared_nj: dict[str, int]
    rest_nj: int
    windows: int
    windows_all: int
    cpu_ns: int
    weight: float
    alone_nj: dict[str, float]
    half_nj: float
    remedies: dict[str, float]
    factor: float
    factor_sigma: float
    prior: float
    learned: bool


@dataclass(frozen=True)
class RowTotals:
    """What a ledger has of a row after the last of `windows`: `error` is of its joules, with the
    model's part `model_nj`; `unknown_rest_nj` may be power at rest, and `tails_nj` of idle may be
    its tails (less if negative)."""

    energy_nj: int
    cpu_ns: int
    windows: int
    error: RowErrors
    model_nj: float
    unknown_rest_nj: float
    tails_nj: float


@dataclass
class RowWatch:
    """Notes about the groups `groups`, which are one row, in the main domain."""

    groups: I64
    _whole_nj: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _windows: list[I64] = field(default_factory=list)
    _weight: list[float] = field(default_factory=lambda: [0.0, 0.0])
    _alone_nj: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _settled_nj: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _model: PowerModel | None = None
    _column: I64 = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def energy_nj(self) -> int:
        """What the row was given so far."""
        return self._whole_nj["all"]

    def add(self, model: PowerModel, one: Portion, first: int) -> None:
        """Notes the row's part of one counter's split; `first`: the number of its first window."""
        entries = one.taken.entries
        mine = np.isin(entries.group, self.groups)
        if not mine.any():
            return
        out, window = one.out, entries.window[mine]
        for name, energy_nj in (
            ("all", out.entry_nj),
            ("dynamic", out.entry_dynamic_nj),
            (REST, out.entry_static_nj),
        ):
            self._whole_nj[name] += int(energy_nj[mine].sum())
        ran = np.unique(window[entries.cpu_ns[mine] > 0])
        self._windows.append(ran + first)
        self._weight[0] += float(one.weight[mine].sum())
        self._weight[1] += float(one.window_weight[ran].sum())
        self._add_dynamic(model, one, mine)
        shared_w = float(model.shared_w[one.zone]) * one.part
        self._parts["shared "] += shared_w * float(entries.shared_ns[mine].sum())
        costs = model.theta[len(WEIGHT_TERMS) :]
        effects = entries.effects[mine].sum(axis=0)
        for name, cost, amount in zip(EFFECT_TERMS, costs, effects, strict=True):
            self._parts[f"shared {name[0]}"] += float(cost * amount) * one.part

    def _add_dynamic(self, model: PowerModel, one: Portion, mine: Bool) -> None:
        """Divides the dynamic energy of each entry by the terms of its weight."""
        weight = one.weight[mine]
        energy_nj = one.out.entry_dynamic_nj[mine].astype(np.float64)
        per_weight = np.where(weight > 0, energy_nj / np.where(weight > 0, weight, 1.0), 0.0)
        scale = per_weight * model.saturation(one.taken.crowd[mine])
        scale *= model.factors(one.column[mine])
        for name in _COSTS:
            theta = model.theta.copy()
            others = [THETA.index(other) for other in _COSTS if other != name]
            theta[others] = 0.0
            found = (one.taken.features[mine] @ basis(theta)) * scale
            self._parts[f"dynamic {name}"] += float(found.sum())
        # Of a window in which no event of the weight happened, time divided the energy.
        self._parts["dynamic t"] += float(energy_nj[weight <= 0].sum())

    def close(self, model: PowerModel, moves: Sensitivity, groups: I64, class_of: ClassOf) -> None:
        """Notes the model's error of one block, whose groups are `groups`."""
        mine = np.isin(groups, self.groups)
        column = model.column(class_of(self.groups))
        column = np.unique(column[column >= 0])
        self._model, self._column = model, column
        slopes = moves.slopes[mine].sum(axis=0)[None, :]
        own_nj = model.spread * float(moves.own_nj[mine].sum())
        beyond_nj = model.unexplained * float(moves.energy_nj[mine].sum())
        places = _places(model, column)
        for name, columns in places.items():
            part = np.zeros_like(slopes)
            part[:, columns] = slopes[:, columns]
            variance = float(variance_of(part, model)[0])
            self._alone_nj[name] += math.sqrt(variance + own_nj**2 * (name == OWN))
        self._alone_nj["what the model lacks"] += beyond_nj
        for name, settled in REMEDIES.items():
            known = np.concatenate([places[source] for source in settled])
            left = replace(model, covariance=_given(model.covariance, known))
            own2 = own_nj**2 * (OWN not in settled)
            variance = float(variance_of(slopes, left)[0])
            self._settled_nj[name] += math.sqrt(variance + own2 + beyond_nj**2)

    def explained(self, row: RowTotals) -> Explanation:
        """The explanation, after the last window."""
        error, energy_nj = row.error, row.energy_nj
        dynamic_nj, rest_nj = self._whole_nj["dynamic"], self._whole_nj[REST]
        one_sided_nj = row.unknown_rest_nj + abs(row.tails_nj)
        windows = np.unique(np.concatenate([np.zeros(0, np.int64), *self._windows]))
        weight, of_all = self._weight
        alone = {name: Z95 * sigma for name, sigma in self._alone_nj.items()} | {
            "edges of windows": Z95 * math.sqrt(max(error.random_nj2, 0.0)),
            "multiplexed counters": error.scaled_nj,
            "lost records": error.loss_nj + error.unnamed_nj,
            "unknown power at rest": row.unknown_rest_nj / 2,
            "tails or power at rest": abs(row.tails_nj) / 2,
            "known from one side": (error.down_nj + error.up_nj - one_sided_nj) / 2,
        }
        remedies = {}
        for name, settled_nj in self._settled_nj.items():
            left_nj = settled_nj if error.model_nj <= row.model_nj * (1 + 1e-9) else error.model_nj
            left = replace(error, model_nj=min(left_nj, error.model_nj))
            if "power at rest" in REMEDIES[name]:
                less_nj = row.unknown_rest_nj + max(-row.tails_nj, 0.0)
                left = replace(left, down_nj=max(left.down_nj - less_nj, 0.0))
                left = replace(left, up_nj=max(left.up_nj - max(row.tails_nj, 0.0), 0.0))
            remedies[name] = _half(left, energy_nj)
        model, column = self._model, self._column
        return Explanation(
            energy_nj=energy_nj,
            dynamic_nj=self._divided("dynamic ", dynamic_nj),
            shared_nj=self._divided("shared ", self._whole_nj["all"] - dynamic_nj - rest_nj),
            rest_nj=rest_nj,
            windows=len(windows),
            windows_all=row.windows,
            cpu_ns=row.cpu_ns,
            weight=weight / of_all if of_all else 0.0,
            alone_nj=dict(sorted(alone.items(), key=lambda one: -one[1])),
            half_nj=_half(error, energy_nj),
            remedies=dict(sorted(remedies.items(), key=lambda one: one[1])),
            factor=float(model.factor[column[0]]) if model and len(column) else 1.0,
            factor_sigma=model.factor_sigma(int(column[0]))
            if model and len(column)
            else (model.spread if model else 0.0),
            prior=model.spread if model else 0.0,
            learned=bool(model and model.learned and len(column)),
        )

    def _divided(self, prefix: str, total_nj: int) -> dict[str, int]:
        """Whole nJ of the parts whose names begin with `prefix`; they add up to `total_nj`."""
        found = {
            name.removeprefix(prefix): max(value, 0.0)
            for name, value in self._parts.items()
            if name.startswith(prefix)
        }
        if not any(found.values()):
            found = dict.fromkeys(found or ("t" if prefix[0] == "d" else "",), 1.0)
        weight = np.array(list(found.values()))
        each = apportion(np.array([total_nj]), np.zeros(len(weight), np.int64), weight)
        return {name: int(nj) for name, nj in zip(found, each, strict=True)}


def _places(model: PowerModel, column: I64) -> dict[str, I64]:
    """The parameters of each of `SOURCES`; `column`: the row's own factors."""
    numbers = np.arange(len(model.covariance))
    own = np.isin(numbers, model.fixed + column)
    weights = 2 * model.zones + len(WEIGHT_TERMS)
    ends = [0, model.zones, 2 * model.zones, weights, model.fixed]
    fixed = [numbers[a:b] for a, b in pairwise(ends)]
    others = numbers[(numbers >= model.fixed) & ~own]
    return dict(zip(SOURCES, [*fixed, numbers[own], others], strict=True))


def _given(covariance: F64, known: I64) -> F64:
    """The covariance if the parameters `known` were known exactly."""
    beside = covariance[:, known]
    inner = np.linalg.pinv(covariance[np.ix_(known, known)], hermitian=True)
    return np.asarray(covariance - beside @ inner @ beside.T)


def _half(error: RowErrors, energy_nj: int) -> float:
    low, high = error.ends(float(energy_nj))
    return (float(high) - float(low)) / 2
