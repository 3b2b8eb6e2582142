"""A power model fitted to a real server's recorded power, and tested on the time after it.

The first two thirds of the recording are for fitting, and for every choice between models, by
cross-validation on stretches of it; the last third is predicted once. The regression is the
engine's own: non-negative least squares (`qjoule.model.fit.power`), here with Huber's loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from bench.accuracy.recording import F64, I64

from qjoule.model.counters import Bool
from qjoule.model.fit.power import fit_power

RECORDING = Path(__file__).parent / "data" / "node-power-nx12" / "node.csv"
DOMAINS = ("package", "dram")
TARGET = 0.09

FOLDS = 6
#: Residuals beyond this many robust standard deviations count by their size, not its square: rows
#: whose counters came late are outliers (Huber, Ann. Math. Stat. 35, 1964).
HUBER = 0.7
ROUNDS = 12
#: Reports of one frequency that a model of its own needs, and how wide a layer is (SmartWatts).
LAYER_ROWS, LAYER_GHZ = 10, 0.1


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
        """Cycles per CPU time; rows in which CPU time is missing show far too much."""
        return self.cycles / np.maximum(self.cpus, 1e-3)


def load(path: Path = RECORDING) -> Node:
    """The recording. Raises `OSError` or `KeyError` if it is not there or not such a table."""
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
    """Features that are the node's columns, and power at rest."""
    return lambda node: np.column_stack(
        [np.ones(len(node)), *(getattr(node, name) for name in names)]
    )


def physical(awake_cycles: float, miss_limit: float, cores: float) -> Features:
    """What draws power in a machine; nothing but the three scales is left to choose.

    - power at rest, and power once while any core is awake: `awake_cycles` 10^9/s are enough to
      have it awake all the time;
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


#: The scales that cross-validation chooses from: a grid of powers of about two and three.
GRID = [
    physical(awake, miss, cores)
    for awake, miss, cores in product((1.0, 3.0), (10.0, 30.0, 100.0), (4.0, 8.0, 16.0, 32.0))
]


@dataclass(frozen=True)
class PowerError:
    """Mean absolute error over mean power: held out, and in cross-validation before that."""

    method: str
    domain: str
    held_out: float
    validated: float


def compare(node: Node) -> list[PowerError]:
    """All methods on both domains; qjoule's comes first."""
    fit, test = thirds(len(node))
    results = []
    for domain in DOMAINS:
        chosen = min(GRID, key=lambda features: validate(node, domain, fit, features))
        methods: dict[str, Features] = {
            "qjoule": chosen,
            "cpu_time": of_columns("cpus"),
            "cycles": of_columns("cycles"),
            "counters": of_columns("cycles", "instructions", "misses"),
        }
        for name, features in methods.items():
            held_out = error(node, domain, fit, test, features)
            cv = validate(node, domain, fit, features)
            results.append(PowerError(name, domain, held_out, cv))
        layered = [error(node, domain, *rows, None) for rows in [(fit, test), *_folds(fit)]]
        cv = float(np.mean(layered[1:]))
        results.append(PowerError("per_frequency", domain, layered[0], cv))
    return results


def thirds(rows: int) -> tuple[I64, I64]:
    """The rows to fit, the first two thirds, and those to predict."""
    split = rows * 2 // 3
    return np.arange(split), np.arange(split, rows)


def _folds(fit: I64) -> list[tuple[I64, I64]]:
    parts = np.array_split(fit, FOLDS)
    return [(np.setdiff1d(fit, part), part) for part in parts]


def validate(node: Node, domain: str, fit: I64, features: Features) -> float:
    """Mean error over stretches of `fit`, each predicted from the others."""
    return float(np.mean([error(node, domain, *rows, features) for rows in _folds(fit)]))


def error(node: Node, domain: str, fit: I64, test: I64, features: Features | None) -> float:
    """Error on `test` of a model fitted to `fit`. Without `features`: a model per frequency."""
    power_w = node.power_w[domain]
    if features is None:
        predicted = _per_frequency(node, power_w, fit, test)
    else:
        x = features(node)
        predicted = x[test] @ robust_fit(x[fit], power_w[fit])
    return float(np.abs(predicted - power_w[test]).mean() / power_w[test].mean())


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
        coefficients = fit_power(features, power_w, weight=weight).coef
        size = np.abs(power_w - features @ coefficients)
        limit = HUBER * 1.4826 * float(np.median(size))
        weight = np.minimum(1.0, limit / np.maximum(size, 1e-9)) if limit > 0 else weight
    return coefficients


def _per_frequency(node: Node, power_w: F64, fit: I64, test: I64) -> F64:
    """A model of counters for every layer of frequency, as SmartWatts has; else one for all."""
    x = of_columns("cycles", "instructions", "misses")(node)
    layer = np.floor(node.ghz() / LAYER_GHZ).astype(np.int64)
    predicted = x[test] @ robust_fit(x[fit], power_w[fit])
    for one in np.unique(layer[test]):
        rows: I64 = fit[layer[fit] == one]
        here: Bool = layer[test] == one
        if len(rows) >= LAYER_ROWS:
            predicted[here] = x[test][here] @ robust_fit(x[rows], power_w[rows])
    result: F64 = predicted
    return result


def render(errors: Sequence[PowerError]) -> list[str]:
    """The table, with the target beside qjoule's figures."""
    names = list(dict.fromkeys(one.method for one in errors))
    lines = [
        "Power of a real server, its last third predicted: mean error, % of mean",
        "",
        f"{'':<18}" + "".join(f"{domain:>10}{'validated':>11}" for domain in DOMAINS),
    ]
    for name in names:
        cells = [
            f"{100 * one.held_out:>10.1f}{100 * one.validated:>11.1f}"
            for domain in DOMAINS
            for one in errors
            if (one.method, one.domain) == (name, domain)
        ]
        lines.append(f"{name:<18}" + "".join(cells))
    return [*lines, f"target of qjoule: {100 * TARGET:.0f} % or less in both"]
