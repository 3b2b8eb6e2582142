# SPDX-License-Identifier: Apache-2.0
"""SmartWatts: Fieni, Rouvoy, Seinturier, "SmartWatts: Self-Calibrating Software-Defined Power Meter
for Containers", CCGRID 2020 (arXiv:2001.02505), and powerapi-ng/smartwatts-formula.

Reports come twice a second. Power above static power is regressed on the events of all targets, one
model for every 100 MHz of the package's mean frequency, with coefficients >= 0 (the formula's
ElasticNet(positive=True); events are in the billions, so its penalty does nothing). A target's
share of dynamic power is the prediction for its events divided by the prediction for all events.

The published meter learns as it goes and reports nothing for a layer's first ten reports. Here
every layer is fitted to the whole run beforehand, in its favour. A layer with fewer than ten
reports takes the model of all layers together.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls
from studies.bench.accuracy.peers.observed import Observed
from studies.bench.accuracy.peers.shares import divide
from studies.bench.accuracy.recording import F64

REPORT_NS = 500_000_000
LAYER_GHZ = 0.1
MIN_REPORTS = 10


def shares(seen: Observed) -> F64 | None:
    """Energy above idle by predicted power."""
    if seen.counts is None:
        return None
    number = (np.cumsum(seen.dt_ns) - seen.dt_ns).astype(np.int64) // REPORT_NS
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    energy_nj = np.add.reduceat(seen.above_idle_nj(), starts, axis=1)
    dt_ns = np.add.reduceat(seen.known * seen.dt_ns, starts, axis=1)
    counts = np.add.reduceat(seen.counts, starts, axis=0)
    cpu_ns = np.add.reduceat(seen.cpu_ns, starts, axis=0).sum(axis=2)
    weight = np.zeros(counts.shape[:3])
    for package in range(energy_nj.shape[0]):
        events = counts[:, package].sum(axis=1)
        ghz = events[:, 0] / np.maximum(cpu_ns[:, package], 1.0)
        model = _layers(energy_nj[package], dt_ns[package], events, ghz)
        weight[:, package] = np.einsum("kgc,kc->kg", counts[:, package], model)
    return divide(energy_nj, weight)


def _layers(energy_nj: F64, dt_ns: F64, events: F64, ghz: F64) -> F64:
    """Coefficients (n, 3) in nJ per event that apply to each report."""
    known = dt_ns > 0
    layer = np.floor(ghz / LAYER_GHZ)
    model = np.tile(_fit(energy_nj[known], dt_ns[known], events[known]), (len(layer), 1))
    for one in np.unique(layer):
        rows = known & (layer == one)
        if rows.sum() >= MIN_REPORTS:
            fitted = _fit(energy_nj[rows], dt_ns[rows], events[rows])
            if fitted.any():
                model[layer == one] = fitted
    return model


def _fit(energy_nj: F64, dt_ns: F64, events: F64) -> F64:
    """Non-negative least squares of power on event rates, with an intercept that is dropped."""
    if not len(energy_nj):
        return np.zeros(events.shape[1])
    scale = np.maximum(events.max(axis=0), 1.0) / dt_ns.mean()
    rates = np.column_stack([events / dt_ns[:, None] / scale, np.ones(len(dt_ns))])
    coefficients: F64 = nnls(rates, energy_nj / dt_ns)[0][:-1] / scale
    return coefficients
