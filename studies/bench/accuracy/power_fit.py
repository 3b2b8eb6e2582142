# SPDX-License-Identifier: Apache-2.0
"""Fits power models to a real server's recorded power and tests them on later time.

The first two thirds of the recording are for fitting and for choosing between models, by
cross-validation on blocks of time within them. The last third is only predicted.

`qjoule` is the engine's regression (`qjoule.model.nonnegative`: non-negative least squares, here
with Huber's loss) on features that physically draw power in a machine. `qjoule_windows` is the
model that attribution fits to windows (`qjoule.model.fit.block`), which divides energy among owners
and therefore has fewer terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from studies.bench.accuracy.recording import F64, I64

from qjoule.model.arrays import EFFECTS
from qjoule.model.coefficients import Coefficients
from qjoule.model.energy import Bool
from qjoule.model.features import FEATURES
from qjoule.model.fit.beliefs import belief_of
from qjoule.model.fit.block import fit_block
from qjoule.model.fit.evidence import Evidence
from qjoule.model.fit.observed import Rows, predict
from qjoule.model.nonnegative import solve_nonnegative
from qjoule.model.power_model import PowerModel

RECORDING = Path(__file__).parent / "data" / "node-power-nx12" / "node.csv"
DOMAINS = ("package", "dram")
TARGET = 0.09

FOLDS = 6
#: Residuals beyond this many robust standard deviations count linearly, not squared: rows whose
#: counters were read late are outliers (Huber, Ann. Math. Stat. 35, 1964).
HUBER = 0.7
ROUNDS = 12
#: Reports of one frequency that its own model needs, and the width of a layer (SmartWatts).
LAYER_ROWS, LAYER_GHZ = 10, 0.1
#: Changes of power that `window_model` may leave out of the fit, from 5 % to none.
STEADY = (0.05, 0.1, 0.2, np.inf)
#: For `window_model`: the highest core frequency; cycles (10^9/s) that keep the package awake;
#: error in watts of a row's ends, at 1 ms and 100 W over 3 s; seconds between rows.
MAX_GHZ, AWAKE_CYCLES, EDGE_W, ROW_S = 4.0, 3.0, 0.01, 3.0


@dataclass(frozen=True)
class Node:
    """n rows of a whole node, all per second: `cycles` and `instructions` in 10^9, `misses` in
    10^6, `cpus` busy CPUs. `power_w` (n,) by domain."""

    cycles: F64
    instructions: F64
    misses: F64
    cpus: F64
    power_w: dict[str, F64]

    def __len__(self) -> int:
        return len(self.cycles)

    def ghz(self) -> F64:
        """Cycles per CPU time. Rows with missing CPU time give a value far too high."""
        return self.cycles / np.maximum(self.cpus, 1e-3)


def load(path: Path = RECORDING) -> Node:
    """The recording. Raises `OSError` or `KeyError` if it is missing or not such a table."""
    table = pd.read_csv(path)
    columns = {name: table[name].to_numpy(np.float64) for name in table.columns}
    return Node(
        columns["cpu_cycles"] * 1e-9,
        columns["cpu_instructions"] * 1e-9,
        columns["cache_miss"] * 1e-6,
        columns["bpf_cpu_time_us"] * 1e-3,
        {domain: columns[f"{domain}_power"] for domain in DOMAINS},
    )


Features = Callable[[Node], F64]


def of_columns(*names: str) -> Features:
    """Features: the node's columns, and power at rest."""
    return lambda node: np.column_stack([np.ones(len(node)), *(getattr(node, n) for n in names)])


def physical(awake_cycles: float, miss_limit: float, cores: float) -> Features:
    """Features that physically draw power in a machine; only the three scales remain to be chosen.

    - power at rest, and power drawn once while any core is awake: `awake_cycles` 10^9/s keep the
      package awake all the time;
    - cycles, instructions, CPU time, misses, and misses on a bus with `miss_limit` 10^6/s of room;
    - frequency: a cycle costs V**2, and V grows with f. f is cycles by busy CPUs, to which half of
      the `cores` are added: no row then has a frequency that its missing CPU time made up. With few
      threads the cores run faster than with all; and load and frequency rise together.
    """

    def features(node: Node) -> F64:
        cycles, cpus = node.cycles, node.cpus
        return np.column_stack(
            [
                np.ones(len(node)),
                1 - np.exp(-cycles / awake_cycles),
                cycles,
                node.instructions,
                node.misses,
                cpus,
                node.misses / (1 + node.misses / miss_limit),
                cycles**2,
                cycles**3,
                cycles / (1 + cpus / cores),
                cycles * (cycles / (cpus + cores / 2)) ** 2,
            ]
        )

    return features


#: Candidate scales for cross-validation: a grid of powers of about two and three.
GRID = [
    physical(awake, miss, cores)
    for awake, miss, cores in product((1.0, 3.0), (10.0, 30.0, 100.0), (4.0, 8.0, 16.0, 32.0))
]


Predictor = Callable[[Node, str, I64, I64], F64]  #: (node, domain, fit, test) -> watts of test


@dataclass(frozen=True)
class PowerError:
    """Mean absolute error over mean power: held out, and in cross-validation before that."""

    method: str
    domain: str
    held_out: float
    validated: float


def compare(node: Node) -> list[PowerError]:
    """All methods on both domains; qjoule's come first."""
    fit, test = thirds(len(node))
    results = []
    for domain in DOMAINS:
        methods: dict[str, Predictor] = {
            "qjoule": best(node, domain, fit, map(least_squares, GRID)),
            "qjoule_windows": best(node, domain, fit, map(window_model, STEADY)),
            "cpu_time": least_squares(of_columns("cpus")),
            "cycles": least_squares(of_columns("cycles")),
            "counters": least_squares(of_columns("cycles", "instructions", "misses")),
            "per_frequency": per_frequency,
        }
        for name, predictor in methods.items():
            held_out = error(node, domain, fit, test, predictor)
            cv = validate(node, domain, fit, predictor)
            results.append(PowerError(name, domain, held_out, cv))
    return results


def thirds(rows: int) -> tuple[I64, I64]:
    """The rows to fit (the first two thirds) and the rows to predict."""
    split = rows * 2 // 3
    return np.arange(split), np.arange(split, rows)


def validate(node: Node, domain: str, fit: I64, predictor: Predictor) -> float:
    """Mean error over blocks of `fit`, each predicted from the others."""
    parts = np.array_split(fit, FOLDS)
    folds = [(np.setdiff1d(fit, part), part) for part in parts]
    return float(np.mean([error(node, domain, *rows, predictor) for rows in folds]))


def best(node: Node, domain: str, fit: I64, predictors: Iterable[Predictor]) -> Predictor:
    """The candidate with the least error in cross-validation. It sees no row outside `fit`."""
    return min(predictors, key=lambda predictor: validate(node, domain, fit, predictor))


def error(node: Node, domain: str, fit: I64, test: I64, predictor: Predictor) -> float:
    """Error on `test` of the model fitted to `fit`."""
    power_w = node.power_w[domain][test]
    return float(np.abs(predictor(node, domain, fit, test) - power_w).mean() / power_w.mean())


def least_squares(features: Features) -> Predictor:
    """One robust fit to all rows."""

    def predict_rows(node: Node, domain: str, fit: I64, test: I64) -> F64:
        x = features(node)
        return np.asarray(x[test] @ robust_fit(x[fit], node.power_w[domain][fit]))

    return predict_rows


def window_model(steady: float) -> Predictor:
    """The model that fits windows of a trace, uncalibrated, with the node as the only owner.

    As in a calibration run, rows in which the load changes are not fitted: those whose power
    changes by more than the fraction `steady`. This recording lacks some of what a trace has, so
    siblings are left out and the time with any core awake is guessed.
    """

    def predict_rows(node: Node, domain: str, fit: I64, test: I64) -> F64:
        usable = np.ones(len(fit), bool)
        power_w = node.power_w[domain][fit]
        change = np.abs(np.diff(power_w)) > steady * power_w[1:]
        usable[1:] &= ~change
        usable[:-1] &= ~change
        rows = replace(_rows(node, domain, fit), known=usable)
        coefficients = Coefficients()
        prior = PowerModel.of(coefficients, domain, [0], counters=True)
        belief = belief_of(prior, rows, coefficients.of(domain), dram=domain == "dram")
        fitted = fit_block(rows, belief, Evidence.none(len(belief.mean)))
        return predict(_rows(node, domain, test), fitted.value)[0]

    return predict_rows


def _rows(node: Node, domain: str, rows: I64) -> Rows:
    """Rows of the node as windows in which one class ran, with factor 1."""
    cycles, cpus = node.cycles[rows], node.cpus[rows]
    ghz = np.minimum(node.ghz()[rows], MAX_GHZ)
    nothing = np.zeros(len(rows))
    columns = {
        "cycles": cycles,
        "instructions": node.instructions[rows],
        "llc_misses": node.misses[rows] * 1e-3,
        "cpu_ns": cpus,
        "cycles_f2": cycles * ghz**2,
    }
    features = np.stack([columns.get(name, nothing) for name in FEATURES], axis=1)
    return Rows(
        power_w=node.power_w[domain][rows],
        known=np.ones(len(rows), bool),
        zone=np.zeros(len(rows), np.int64),
        active=1 - np.exp(-cycles / AWAKE_CYCLES),
        crowd=np.maximum(cpus, 1.0)[:, None],
        features=features[:, None, :],
        effects=np.zeros((len(rows), len(EFFECTS))),  # recorded once a second, without threads
        classes=np.zeros(0, np.int64),
        edge_w=np.full(1, EDGE_W),
        step_s=ROW_S,
    )


def robust_fit(features: F64, power_w: F64) -> F64:
    """Coefficients (k,) >= 0 under Huber's loss, by reweighted least squares.

    >>> x = np.column_stack([np.ones(50), np.arange(50.0)])
    >>> y = x @ [3.0, 2.0]
    >>> y[7] = 500.0
    >>> robust_fit(x, y).round(2).tolist()
    [3.0, 2.0]
    """
    weight = np.ones(len(power_w))
    coefficients = np.zeros(features.shape[1])
    for _ in range(ROUNDS):
        weighted = features * weight[:, None]
        coefficients = solve_nonnegative(weighted.T @ features, weighted.T @ power_w)
        size = np.abs(power_w - features @ coefficients)
        limit = HUBER * 1.4826 * float(np.median(size))
        weight = np.minimum(1.0, limit / np.maximum(size, 1e-9)) if limit > 0 else weight
    return coefficients


def per_frequency(node: Node, domain: str, fit: I64, test: I64) -> F64:
    """One counter model per frequency layer, as in SmartWatts; one model for all where data is
    scarce.
    """
    x, power_w = of_columns("cycles", "instructions", "misses")(node), node.power_w[domain]
    layer = np.floor(node.ghz() / LAYER_GHZ).astype(np.int64)
    predicted: F64 = x[test] @ robust_fit(x[fit], power_w[fit])
    for level in np.unique(layer[test]):
        rows: I64 = fit[layer[fit] == level]
        at_level: Bool = layer[test] == level
        if len(rows) >= LAYER_ROWS:
            predicted[at_level] = x[test][at_level] @ robust_fit(x[rows], power_w[rows])
    return predicted


def render(errors: Sequence[PowerError]) -> list[str]:
    """The table, with the target beside qjoule's figures."""
    names = list(dict.fromkeys(error.method for error in errors))
    lines = [
        "Power of a real server, its last third predicted: mean error, % of mean",
        "",
        f"{'':<18}" + "".join(f"{domain:>10}{'validated':>11}" for domain in DOMAINS),
    ]
    for name in names:
        cells = [
            f"{100 * error.held_out:>10.1f}{100 * error.validated:>11.1f}"
            for domain in DOMAINS
            for error in errors
            if (error.method, error.domain) == (name, domain)
        ]
        lines.append(f"{name:<18}" + "".join(cells))
    return [*lines, f"target of qjoule: {100 * TARGET:.0f} % or less in both"]
