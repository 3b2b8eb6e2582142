# SPDX-License-Identifier: Apache-2.0
"""Cells and memories of a machine, drawn at random, to test how they are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qjoule.machine.identity import Identity, Package
from qjoule.machine.memory import Memory
from qjoule.model.coefficients import THETA
from qjoule.model.fit.cells import U64, Cell, Conditions

NAMES = ("idle_w.0", "shared_w.0", *THETA)
NOW_S = 1.8e9
USUAL = Conditions("6.1", "performance", "800000-3500000 on", "0x2b", "rapl measured")
HERE = Identity(
    host="db1",
    machine="0" * 31 + "1",
    cpu="Intel Xeon Gold 6338",
    signature="GenuineIntel 6-106-6",
    packages=(Package(0, 8, 16),),
)


def _bare(seed: int, domain: str, when_s: float, value: dict[str, float], keys: U64) -> Cell:
    """A cell without evidence. `value` by name; `seed` tells it from others of the same time."""
    return Cell(
        seed,
        domain,
        when_s,
        USUAL,
        tuple(value),
        np.array([*value.values()], np.float32).astype(np.float64),
        keys,
        np.full(len(keys), 7, np.uint64),
        np.zeros(len(keys), bool),
        *(np.zeros(0),) * 4,
        0.15,
        np.array([(int(when_s) // 60 << 36) + seed], np.uint64),
    )


def cell(
    seed: int,
    shapes: int = 3,
    *,
    when_s: float = NOW_S,
    domain: str = "package",
    windows: int = 400,
) -> Cell:
    """Evidence of `windows` windows of a machine that idles at 20 W, as a block tells it."""
    random = np.random.default_rng(seed)
    f, size = len(NAMES), len(NAMES) + shapes
    x = random.uniform(0, 1, (windows, size)) * (random.random((windows, size)) < 0.5)
    x[:, 0] = 1.0
    truth = np.append(np.full(f, 2.0), random.normal(1.0, 0.1, shapes))
    truth[0] = 20.0
    y = x @ truth + random.normal(0, 1.0, windows)
    precision, moment = x.T @ x, x.T @ y
    keys = np.arange(1, 1 + shapes, dtype=np.uint64)
    bare = _bare(seed, domain, when_s, dict(zip(NAMES, truth[:f].tolist(), strict=True)), keys)
    parts = precision[:f, :f], precision[f:, :f], precision[f:, f:]
    return bare.holding(*parts, moment).stored()


def memory(*seeds: int, shapes: int = 3) -> Memory:
    """A memory of one cell for each seed, a day apart."""
    cells = [cell(seed, shapes, when_s=NOW_S - 86_400.0 * i) for i, seed in enumerate(seeds)]
    return Memory(HERE, tuple(cells)).merged(Memory(HERE))


def changed(one: Cell, key: int) -> Cell:
    """The cell with one shape that had changed."""
    return replace(one, fresh=one.keys == key)
