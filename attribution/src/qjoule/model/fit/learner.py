# SPDX-License-Identifier: Apache-2.0
"""Learns a machine's power from a trace, block by block, while the evidence of earlier blocks
fades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qjoule.model.arrays import F64, WindowBatch
from qjoule.model.coarse import coarse
from qjoule.model.coefficients import THETA, Coefficients
from qjoule.model.energy import I64, Series
from qjoule.model.fit.beliefs import belief_of
from qjoule.model.fit.block import Belief, BlockFit, Evidence, fit_block
from qjoule.model.fit.observed import Rows
from qjoule.model.fit.rows import ClassOf, Source, itself, make_rows, settled, spread_out, thinned
from qjoule.model.power_model import PowerModel
from qjoule.model.renumbering import Renumbering
from qjoule.model.slow import slow_of
from qjoule.model.zones import zones

#: Share of a block's evidence that is kept at the end of the next: a minute at blocks of 30 s.
_KEEP = 0.7
_KEEP_DRIFTED = 0.2
#: Number of classes with a factor of their own, and the least share of all weight they need.
_MAX_CLASSES = 64
_MIN_SHARE = 1e-3
_UNSEEN = 2.0  #: a model never tested against known loads may be nonlinear by this many times more
_MIN_WINDOWS = 25  #: fewer known windows give no usable evidence
#: Memory of servers draws less than three times what their packages do; more is a wrong unit.
_MAX_DRAM_RATIO = 3.0
#: If the model of earlier blocks predicts a block this many times worse than its own fit: drift.
_DRIFT_RATIO = 1.5
#: What was learned is dropped if it predicts a block this many times worse than the prior does.
_HARMS = 1.1


@dataclass
class _Memory:
    """Evidence of earlier blocks on the fixed parameters and these classes."""

    evidence: Evidence
    classes: I64
    spread: float


@dataclass
class Learner:
    """Learns a power model per domain. `class_of` maps groups to classes that share a factor."""

    series: tuple[Series, ...]
    packages: tuple[int, ...]
    coefficients: Coefficients
    period_ns: int
    class_of: ClassOf = itself
    notes: dict[str, int] = field(default_factory=dict)  #: what happened, and in how many blocks
    last: dict[str, PowerModel] = field(default_factory=dict)  #: of the last block kept
    _memory: dict[str, _Memory] = field(default_factory=dict)

    def learn(self, batches: Sequence[WindowBatch], *, keep: bool) -> dict[str, PowerModel]:
        """Returns models by domain for one block of consecutive windows; remembers them if
        `keep`."""
        models = {}
        domains = tuple(dict.fromkeys(s.domain for s in self.series))
        watts = {domain: self._mean_w(batches, domain) for domain in domains}
        for domain in domains:
            if domain == "dram" and watts["dram"] > _MAX_DRAM_RATIO * watts.get("package", np.inf):
                if keep:
                    self._note("dram implausible against package")
                continue
            if (model := self._learn(domain, batches, keep)) is not None:
                models[domain] = model
        return models

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the classes; classes that were merged with others are forgotten."""
        self.last = {name: one.renumbered(renumbering) for name, one in self.last.items()}
        for known in self._memory.values():
            within = known.classes < len(renumbering.group)
            stays = within.copy()
            stays[within] = renumbering.alone(known.classes[within])
            fixed = len(known.evidence.moment) - len(known.classes)
            known.evidence = _forget_classes(known, np.append(np.ones(fixed, bool), stays))
            known.classes = renumbering.group[known.classes[stays]]

    def _note(self, text: str) -> None:
        self.notes[text] = self.notes.get(text, 0) + 1

    def _mean_w(self, batches: Sequence[WindowBatch], domain: str) -> float:
        nj = ns = 0.0
        for s, one in enumerate(self.series):
            if one.domain == domain:
                for batch in batches:
                    energy = coarse(batch, (s,)).energy
                    known = energy.known[s]
                    nj += float(energy.energy_nj[s][known].sum())
                    ns += float(np.diff(energy.boundaries_ns)[known].sum())
        return nj / ns if ns else 0.0

    def _learn(self, domain: str, batches: Sequence[WindowBatch], keep: bool) -> PowerModel | None:
        places = zones(self.series, self.packages, domain)
        weights = self.coefficients.of(domain)
        slow = slow_of([self.series[s] for zone in places for s in zone.series])
        # The half widths already contain all uncertainty of a slow counter's ends.
        period_ns = 0 if slow else self.period_ns
        source = Source(self.series, places, weights, self.class_of, period_ns)
        rows, counters = make_rows(batches, source)
        packages = [zone.package for zone in places]
        prior = PowerModel.of(self.coefficients, domain, packages, counters=counters)
        if int(rows.known.sum()) < _MIN_WINDOWS * len(places) or not rows.features.any():
            return self.last.get(domain)
        rows = _limit_classes(rows, prior)
        every, rows = rows, thinned(rows, settled(rows, period_ns))
        if not weights.calibrated:
            rows = replace(rows, bend=_UNSEEN * rows.bend)
        weights = self.coefficients.of(domain, counters=counters)
        belief = belief_of(prior, rows, weights, dram=domain == "dram")
        try:
            fit, before = self._fit(domain, rows, belief, keep)
        except np.linalg.LinAlgError:
            if keep:
                self._memory.pop(domain, None)
                self._note(f"{domain} power makes no sense: nothing learned")
            return self.last.get(domain)
        if keep:
            self._remember(domain, rows, before, fit)
        drift = _drift(every, spread_out(fit.drift_w, rows, every), fit)
        covariance = fit.covariance.copy()
        at = np.arange(len(places))
        covariance[at, at] += drift.variance_w2
        model = PowerModel(
            *_parts(fit.value, len(places)),
            rows.classes,
            fit.value[len(belief.mean) :].astype(np.float32).astype(np.float64),
            covariance,
            fit.spread,
            learned=True,
            drift_w=drift.rest_w[:, :0] if slow else drift.rest_w,
            first=batches[0].first,
        )
        if keep:
            self.last[domain] = model
        return model

    def _fit(
        self, domain: str, rows: Rows, belief: Belief, keep: bool
    ) -> tuple[BlockFit, Evidence]:
        """The fit of a block, and the evidence of earlier blocks that it used."""
        before = self._recall(domain, rows.classes, len(belief.mean))
        fit = fit_block(rows, belief, before)
        if fit.misfit > _HARMS * fit.misfit_without:
            # What was learned predicts worse than the prior alone.
            before = Evidence.none(len(before.moment))
            fit = fit_block(rows, belief, before)
            if keep:
                self._note(f"{domain} power is not what it was: learned anew")
        return fit, before

    def _recall(self, domain: str, classes: I64, fixed: int) -> Evidence:
        """Evidence of earlier blocks on the parameters of this one."""
        size = fixed + len(classes)
        known = self._memory.get(domain)
        out = Evidence.none(size)
        if known is None:
            return out
        stays = np.isin(known.classes, classes)
        here = np.concatenate([np.ones(fixed, bool), stays])
        old = _forget_classes(known, here)
        at = np.concatenate(
            [np.arange(fixed), fixed + np.searchsorted(classes, known.classes[stays])]
        ).astype(np.int64)
        out.precision[np.ix_(at, at)] = old.precision
        out.moment[at] = old.moment
        return out

    def _remember(self, domain: str, rows: Rows, before: Evidence, fit: BlockFit) -> None:
        keep = _KEEP
        if domain in self._memory and fit.misfit > _DRIFT_RATIO:
            keep = _KEEP_DRIFTED
            self._note(f"{domain} power drifted")
        told = Evidence(
            keep * before.precision + fit.evidence.precision,
            keep * before.moment + fit.evidence.moment,
        )
        self._memory[domain] = _Memory(told, rows.classes, fit.spread)


def _parts(value: F64, count: int) -> tuple[F64, F64, F64]:
    """Idle, shared and theta as single floats, so that the solver's last bit changes no
    nanojoule."""
    plain = value.astype(np.float32).astype(np.float64)
    return plain[:count], plain[count : 2 * count], plain[2 * count : 2 * count + len(THETA)]


@dataclass(frozen=True)
class _Drift:
    """Slow drift of a block's power; `rest_w` (zones, n) is the part that is power at rest.

    That part is the share of power at rest in the mean power. The true owner of the drift is not
    known: `variance_w2` (zones,) is the variance of its mean, as if all of it belonged to either
    side.
    """

    rest_w: F64
    variance_w2: F64


def _drift(rows: Rows, drift_w: F64, fit: BlockFit) -> _Drift:
    count = len(rows.edge_w)
    longest = int(np.bincount(rows.zone, minlength=1).max())
    rest_w = np.zeros((count, longest))
    variance = np.zeros(count)
    for z in range(count):
        mine = rows.zone == z
        known = mine & rows.known
        if not known.any():
            continue
        mean_w = float(rows.power_w[known].mean())
        share = float(np.clip(fit.value[z] / mean_w, 0.0, 1.0)) if mean_w > 0 else 0.0
        rest_w[z, : int(mine.sum())] = share * drift_w[mine]
        variance[z] = share * (1.0 - share) * float(drift_w[known].mean()) ** 2
    return _Drift(rest_w.astype(np.float32).astype(np.float64), variance)


def _forget_classes(known: _Memory, stays: F64) -> Evidence:
    """Evidence with the parameters that are not in `stays` integrated out."""
    gone = ~stays.astype(bool)
    kept = ~gone
    if not gone.any():
        return known.evidence
    matrix, moment = known.evidence.precision, known.evidence.moment
    own = matrix[np.ix_(gone, gone)] + np.eye(int(gone.sum())) * known.spread**-2.0
    cross = matrix[np.ix_(kept, gone)]
    solved = np.linalg.solve(own, np.column_stack([cross.T, moment[gone] + known.spread**-2.0]))
    return Evidence(
        matrix[np.ix_(kept, kept)] - cross @ solved[:, :-1], moment[kept] - cross @ solved[:, -1]
    )


def _limit_classes(rows: Rows, prior: PowerModel) -> Rows:
    """Rows in which only the heaviest classes have factors; all others are in the last column."""
    weight = rows.features[:, :-1].sum(axis=0) @ prior.basis
    total = float(weight.sum())
    order = np.argsort(-weight, kind="stable")[:_MAX_CLASSES]
    kept = np.sort(order[weight[order] > _MIN_SHARE * total])
    rest = np.ones(rows.features.shape[1], bool)
    rest[kept] = False
    others = rows.features[:, rest]
    weights = others @ prior.basis
    busy = (weights * rows.crowd[:, rest]).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-30)
    return replace(
        rows,
        features=np.concatenate(
            [rows.features[:, kept], others.sum(axis=1, keepdims=True)], axis=1
        ),
        crowd=np.column_stack([rows.crowd[:, kept], busy]),
        classes=rows.classes[kept],
    )
