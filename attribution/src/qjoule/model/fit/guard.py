# SPDX-License-Identifier: Apache-2.0
"""Checks a fit against its own windows: does what it leaves unexplained go with anything?

Posterior predictive checks (Gelman, Meng and Stern, Statistica Sinica 6, 1996). Windows are sorted
by load, by idle tails, by memory traffic, and by the share of each class. If the mean of what the
fit left unexplained differs among the quarters, by more than its own noise, the machine does
something that the model has no term for. No window can tell whose that energy is, so all owners'
intervals take it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import EFFECTS, F64
from qjoule.model.fit.observed import Rows

_QUARTERS = 4
_CHUNKS = 10  #: consecutive parts of a block; a mean's noise is how it differs among them
_LEAST_ROWS = 80
_CLASSES = 6  #: the classes with most CPU time
#: Standard errors by which a quarter's mean must differ; about 40 quarters are looked at.
_LIMIT = 4.0
_NS = slice(4, 6)  #: `FEATURES`: time alone, and beside a busy sibling


@dataclass(frozen=True)
class Misfit:
    """`with_what` the unexplained power goes, by name, and its size relative to the power above
    rest."""

    with_what: tuple[str, ...]
    relative: float


NO_MISFIT = Misfit((), 0.0)


def misfit_of(rows: Rows, left_w: F64, above_w: F64) -> Misfit:
    """What of `left_w` (n,), unexplained power, goes with something; `above_w` (n,): above rest."""
    known = np.flatnonzero(rows.known)
    mean_w = float(above_w[known].mean()) if len(known) else 0.0
    if len(known) < _LEAST_ROWS or mean_w <= 0:
        return NO_MISFIT
    found = {
        name: _beyond_noise(values[known], left_w[known])
        for name, values in _contexts(rows, above_w)
    }
    told = {name: watts for name, watts in found.items() if watts > 0}
    most_w = max(told.values(), default=0.0)
    return Misfit(tuple(told), most_w / mean_w)


def _contexts(rows: Rows, above_w: F64) -> Iterator[tuple[str, F64]]:
    tails = [i for i, name in enumerate(EFFECTS) if "tail" in name]
    traffic = [i for i, name in enumerate(EFFECTS) if "traffic" in name]
    yield "load", above_w
    yield "wake-ups", rows.effects[:, tails].sum(axis=1)
    yield "memory traffic", rows.effects[:, traffic].sum(axis=1)
    ns = rows.features[:, :, _NS].sum(axis=2)
    whole = np.maximum(ns.sum(axis=1), 1e-30)
    for one in np.argsort(-ns.sum(axis=0), kind="stable")[:_CLASSES]:
        yield "who runs", ns[:, one] / whole


def _beyond_noise(values: F64, left_w: F64) -> float:
    """Watts by which quarters of the windows differ, root mean square; 0 if that may be noise."""
    edges = np.quantile(values, np.arange(1, _QUARTERS) / _QUARTERS)
    if len(np.unique(edges)) < len(edges):
        return 0.0  # it hardly varies
    quarter = np.searchsorted(edges, values, "right")
    chunk = np.arange(len(values)) * _CHUNKS // len(values)
    key = quarter * _CHUNKS + chunk
    count = np.bincount(key, minlength=_QUARTERS * _CHUNKS).reshape(_QUARTERS, _CHUNKS)
    sums = np.bincount(key, left_w, minlength=count.size).reshape(count.shape)
    total = count.sum(axis=1)
    if (total == 0).any():
        return 0.0
    means = sums.sum(axis=1) / total
    # A ratio's variance (Cochran, Sampling Techniques, 1977, section 2.11), chunks as clusters.
    spread = ((sums - means[:, None] * count) ** 2).sum(axis=1) / total**2 * _CHUNKS / (_CHUNKS - 1)
    beyond = np.maximum(means**2 - spread, 0.0) * (means**2 > _LIMIT**2 * spread)
    return float(np.sqrt((beyond * total).sum() / total.sum()))
