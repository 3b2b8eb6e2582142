# SPDX-License-Identifier: Apache-2.0
"""Records, while windows are split, where one row's joules and their interval come from.

A `RowWatch` is given to the account of a trace. It records the quantities that the split itself
uses: the energy of the row's entries by cause, and the slopes and covariance of the model's error.
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
#: Names of the parts of shared energy, by the first letter of their effect.
SHARED = {
    **{"": "awake", "u": "traffic", "p": "package tails", "q": "core tails", "w": "wake-ups"},
    "k": "other packages kept awake",
}
REST = "rest"
#: The parts of the model that an interval comes from.
OWN = "own factor"
SOURCES = ("power at rest", "shared power", "weights", "effects", OWN, "others' factors")
#: Measures that narrow an interval, and the sources that each would determine.
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
    `half_nj`: half width of the interval. `alone_nj`: the half width that each source alone would
    give, largest first. `remedies`: the half width after each of `REMEDIES`. `prior`: standard
    error of a power factor before any window; `factor_sigma`: the remaining one.
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
    """A ledger's sums for a row after the last of `windows`. `error`: of its joules, with the
    model's part `model_nj`. `unknown_rest_nj`: the part that may be unknown power at rest.
    `tails_nj`: idle energy that may be the row's tails (if negative, tails that may be idle
    energy)."""

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
        """Energy of the row so far."""
        return self._whole_nj["all"]

    def add(self, model: PowerModel, portion: Portion, first: int) -> None:
        """Notes the row's part of one counter's split; `first`: the number of its first window."""
        entries = portion.zone_part.entries
        in_row = np.isin(entries.group, self.groups)
        if not in_row.any():
            return
        splits, window = portion.split, entries.window[in_row]
        for name, energy_nj in (
            ("all", splits.entry_nj),
            ("dynamic", splits.entry_dynamic_nj),
            (REST, splits.entry_static_nj),
        ):
            self._whole_nj[name] += int(energy_nj[in_row].sum())
        run_windows = np.unique(window[entries.cpu_ns[in_row] > 0])
        self._windows.append(run_windows + first)
        self._weight[0] += float(portion.weight[in_row].sum())
        self._weight[1] += float(portion.window_weight[run_windows].sum())
        self._add_dynamic(model, portion, in_row)
        shared_w = float(model.shared_w[portion.zone]) * portion.share
        self._parts["shared "] += shared_w * float(entries.shared_ns[in_row].sum())
        costs = model.theta[len(WEIGHT_TERMS) :]
        effects = entries.effects[in_row].sum(axis=0)
        for name, cost, amount in zip(EFFECT_TERMS, costs, effects, strict=True):
            self._parts[f"shared {name[0]}"] += float(cost * amount) * portion.share

    def _add_dynamic(self, model: PowerModel, portion: Portion, in_row: Bool) -> None:
        """Divides the dynamic energy of each entry by the terms of its weight."""
        weight = portion.weight[in_row]
        energy_nj = portion.split.entry_dynamic_nj[in_row].astype(np.float64)
        per_weight = np.where(weight > 0, energy_nj / np.where(weight > 0, weight, 1.0), 0.0)
        scale = per_weight * model.saturation(portion.zone_part.crowd[in_row])
        scale *= model.factors(portion.column[in_row])
        for name in _COSTS:
            theta = model.theta.copy()
            other_terms = [THETA.index(other) for other in _COSTS if other != name]
            theta[other_terms] = 0.0
            term_nj = (portion.zone_part.features[in_row] @ basis(theta)) * scale
            self._parts[f"dynamic {name}"] += float(term_nj.sum())
        # In a window without any event of the weight, the energy was divided by time.
        self._parts["dynamic t"] += float(energy_nj[weight <= 0].sum())

    def close(self, model: PowerModel, moves: Sensitivity, groups: I64, class_of: ClassOf) -> None:
        """Notes the model's error of one block, whose groups are `groups`."""
        in_row = np.isin(groups, self.groups)
        column = model.column(class_of(self.groups))
        column = np.unique(column[column >= 0])
        self._model, self._column = model, column
        slopes = moves.slopes[in_row].sum(axis=0)[None, :]
        own_nj = model.spread * float(moves.own_nj[in_row].sum())
        unexplained_nj = model.unexplained * float(moves.energy_nj[in_row].sum())
        source_columns = _source_columns(model, column)
        for name, columns in source_columns.items():
            source_slopes = np.zeros_like(slopes)
            source_slopes[:, columns] = slopes[:, columns]
            variance = float(variance_of(source_slopes, model)[0])
            self._alone_nj[name] += math.sqrt(variance + own_nj**2 * (name == OWN))
        self._alone_nj["what the model lacks"] += unexplained_nj
        for name, sources in REMEDIES.items():
            settled_columns = np.concatenate([source_columns[source] for source in sources])
            settled_model = replace(
                model, covariance=_conditional(model.covariance, settled_columns)
            )
            own2 = own_nj**2 * (OWN not in sources)
            variance = float(variance_of(slopes, settled_model)[0])
            self._settled_nj[name] += math.sqrt(variance + own2 + unexplained_nj**2)

    def explained(self, row: RowTotals) -> Explanation:
        """The explanation, after the last window."""
        error, energy_nj = row.error, row.energy_nj
        dynamic_nj, rest_nj = self._whole_nj["dynamic"], self._whole_nj[REST]
        one_sided_nj = row.unknown_rest_nj + abs(row.tails_nj)
        windows = np.unique(np.concatenate([np.zeros(0, np.int64), *self._windows]))
        weight, window_weight = self._weight
        separate_nj = {name: Z95 * sigma for name, sigma in self._alone_nj.items()} | {
            "edges of windows": Z95 * math.sqrt(max(error.random_nj2, 0.0)),
            "multiplexed counters": error.scaled_nj,
            "lost records": error.loss_nj + error.unnamed_nj,
            "unknown power at rest": row.unknown_rest_nj / 2,
            "tails or power at rest": abs(row.tails_nj) / 2,
            "known from one side": (error.down_nj + error.up_nj - one_sided_nj) / 2,
        }
        remedies = {}
        for name, settled_nj in self._settled_nj.items():
            remaining_nj = (
                settled_nj if error.model_nj <= row.model_nj * (1 + 1e-9) else error.model_nj
            )
            remaining = replace(error, model_nj=min(remaining_nj, error.model_nj))
            if "power at rest" in REMEDIES[name]:
                rest_nj_settled = row.unknown_rest_nj + max(-row.tails_nj, 0.0)
                remaining = replace(
                    remaining, down_nj=max(remaining.down_nj - rest_nj_settled, 0.0)
                )
                remaining = replace(
                    remaining, up_nj=max(remaining.up_nj - max(row.tails_nj, 0.0), 0.0)
                )
            remedies[name] = _half_width(remaining, energy_nj)
        model, column = self._model, self._column
        return Explanation(
            energy_nj=energy_nj,
            dynamic_nj=self._divided("dynamic ", dynamic_nj),
            shared_nj=self._divided("shared ", self._whole_nj["all"] - dynamic_nj - rest_nj),
            rest_nj=rest_nj,
            windows=len(windows),
            windows_all=row.windows,
            cpu_ns=row.cpu_ns,
            weight=weight / window_weight if window_weight else 0.0,
            alone_nj=dict(sorted(separate_nj.items(), key=lambda item: -item[1])),
            half_nj=_half_width(error, energy_nj),
            remedies=dict(sorted(remedies.items(), key=lambda item: item[1])),
            factor=float(model.factor[column[0]]) if model and len(column) else 1.0,
            factor_sigma=model.factor_sigma(int(column[0]))
            if model and len(column)
            else (model.spread if model else 0.0),
            prior=model.spread if model else 0.0,
            learned=bool(model and model.learned and len(column)),
        )

    def _divided(self, prefix: str, total_nj: int) -> dict[str, int]:
        """Whole nJ of the parts whose names begin with `prefix`; they add up to `total_nj`."""
        amounts = {
            name.removeprefix(prefix): max(value, 0.0)
            for name, value in self._parts.items()
            if name.startswith(prefix)
        }
        if not any(amounts.values()):
            amounts = dict.fromkeys(amounts or ("t" if prefix[0] == "d" else "",), 1.0)
        weight = np.array(list(amounts.values()))
        whole_nj = apportion(np.array([total_nj]), np.zeros(len(weight), np.int64), weight)
        return {name: int(nj) for name, nj in zip(amounts, whole_nj, strict=True)}


def _source_columns(model: PowerModel, column: I64) -> dict[str, I64]:
    """The parameters of each of `SOURCES`; `column`: the row's own factors."""
    numbers = np.arange(len(model.covariance))
    is_own = np.isin(numbers, model.fixed + column)
    weights = 2 * model.zones + len(WEIGHT_TERMS)
    ends = [0, model.zones, 2 * model.zones, weights, model.fixed]
    fixed = [numbers[begin:end] for begin, end in pairwise(ends)]
    other_factors = numbers[(numbers >= model.fixed) & ~is_own]
    return dict(zip(SOURCES, [*fixed, numbers[is_own], other_factors], strict=True))


def _conditional(covariance: F64, settled: I64) -> F64:
    """The covariance if the parameters `settled` were known exactly."""
    cross = covariance[:, settled]
    inner = np.linalg.pinv(covariance[np.ix_(settled, settled)], hermitian=True)
    return np.asarray(covariance - cross @ inner @ cross.T)


def _half_width(error: RowErrors, energy_nj: int) -> float:
    low, high = error.ends(float(energy_nj))
    return (float(high) - float(low)) / 2
