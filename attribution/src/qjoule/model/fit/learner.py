# SPDX-License-Identifier: Apache-2.0
"""Learns a machine's power from a trace, block by block, while the evidence of earlier blocks
fades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qjoule.model.arrays import F64, Renumbering, WindowBatch
from qjoule.model.coefficients import THETA, Coefficients, IdleTable
from qjoule.model.energy import I64, Series
from qjoule.model.fit.averaged import Prior
from qjoule.model.fit.beliefs import belief_of
from qjoule.model.fit.block import BlockFit, fit_block
from qjoule.model.fit.core_evidence import with_cores
from qjoule.model.fit.earlier_blocks import (
    DecayedEvidence,
    IdlePowerEvidence,
    believed,
    contradicted,
    found_by,
    loosened,
    rests,
    told_by,
)
from qjoule.model.fit.merging import chosen
from qjoule.model.fit.observed import Rows
from qjoule.model.fit.remembered import Memory
from qjoule.model.fit.rows import ClassOf, Source, itself, make_rows, settled, spread_out, thinned
from qjoule.model.fit.solo import alone_in
from qjoule.model.fit.with_memory import BlockMemory
from qjoule.model.per_core import CoreCounters
from qjoule.model.power_model import PowerModel
from qjoule.model.slow import slow_of
from qjoule.model.zones import left_out, zones

#: Share of a block's evidence that is kept at the end of the next: a minute at blocks of 30 s.
_KEEP = 0.7
_KEEP_DRIFTED = 0.2
#: Number of classes with a factor of their own, and the least share of all weight they need.
_MAX_CLASSES = 64
_MIN_SHARE = 1e-3
_LIMITED_ROWS = 256  #: how many rows at a time are brought to these classes
_UNSEEN = 2.0  #: a model never tested against known loads may be nonlinear by this many times more
#: So few windows do not tell power at rest from power that is shared. They are used where a memory
#: knows more, or where nothing ran.
_MIN_WINDOWS = 25
#: If the model of earlier blocks predicts a block this many times worse than its own fit: drift.
_DRIFT_RATIO = 1.5
#: What was learned is dropped if it predicts a block this many times worse than the prior does.
_HARMS = 1.1
_UNUSED = "counters of single cores are not used"


@dataclass
class Learner:
    """Learns a power model per domain. `class_of` maps groups to classes that share a factor."""

    series: tuple[Series, ...]
    packages: tuple[int, ...]
    coefficients: Coefficients
    period_ns: int
    class_of: ClassOf = itself
    memory: Memory | None = None  #: of earlier traces
    table: IdleTable | None = None  #: the machine's idle states; None: its kernel shows none
    cores: CoreCounters | None = None  #: energy counters of single cores, if there are any
    notes: dict[str, int] = field(default_factory=dict)  #: what happened, and in how many blocks
    core_blocks: int = 0  #: blocks in which counters of single cores were used
    last: dict[str, PowerModel] = field(default_factory=dict)  #: of the last block kept
    _memory: dict[str, DecayedEvidence] = field(default_factory=dict)
    _rest: dict[str, IdlePowerEvidence] = field(
        default_factory=dict
    )  #: told by blocks of this trace

    def __post_init__(self) -> None:
        self._of_cores: WindowBatch | None = None  #: of the block that is learned from

    def learn(
        self,
        batches: Sequence[WindowBatch],
        *,
        keep: bool,
        of_cores: WindowBatch | None = None,
    ) -> dict[str, PowerModel]:
        """Returns models by domain for one block of consecutive windows; remembers them if
        `keep`. `of_cores`: windows of `cores` in the same time."""
        self._of_cores = None
        if self.cores and of_cores:
            self._of_cores, why = self.cores.usable(of_cores, batches, self.series)
            if keep and why:
                self._note(f"{_UNUSED}: {why}")
        models = {}
        domains = tuple(dict.fromkeys(s.domain for s in self.series))
        wrong = left_out(batches, self.series)
        for domain in domains:
            if domain in wrong:
                continue
            if (model := self._learn(domain, batches, keep)) is not None:
                models[domain] = model
        return models

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the classes; classes that were merged with others are forgotten."""
        self.last = {name: one.renumbered(renumbering) for name, one in self.last.items()}
        self._memory = {name: one.renumbered(renumbering) for name, one in self._memory.items()}

    def _note(self, text: str) -> None:
        self.notes[text] = self.notes.get(text, 0) + 1

    def _learn(self, domain: str, batches: Sequence[WindowBatch], keep: bool) -> PowerModel | None:
        places, weights = zones(self.series, self.packages, domain), self.coefficients.of(domain)
        slow = slow_of([self.series[s] for zone in places for s in zone.series])
        # The half widths already contain all uncertainty of a slow counter's ends.
        period_ns = 0 if slow else self.period_ns
        source = Source(self.series, places, weights, self.class_of, period_ns)
        rows, counters = make_rows(batches, source)
        packages = [zone.package for zone in places]
        prior = PowerModel.of(self.coefficients, domain, packages, counters=counters)
        if not _known_everywhere(rows):
            return self.last.get(domain)
        every = _limit_classes(rows, prior)
        if not weights.calibrated:
            every = replace(every, bend=_UNSEEN * every.bend)
        width, even = _evenly(every, period_ns)
        weights = self.coefficients.of(domain, counters=counters)
        memory = BlockMemory.of(self.memory, domain, places, counters=counters)
        rest, known = self._rest_of(domain, memory), np.isfinite(prior.idle_w)
        belief = belief_of(
            prior,
            even,
            weights,
            dram=domain == "dram",
            table=self.table,
            long_tails=bool(rest.known.all()),
            rests=rests(even),
        )
        few = int(rows.known.sum()) < _MIN_WINDOWS * len(places) and rows.features.any()
        if few and not memory.knows(every.classes):
            return self.last.get(domain)
        earlier = self._earlier(domain, every.classes, len(belief.mean))
        try:
            # Beliefs alone do not tell well enough what merging would lose.
            rows = chosen(every, even, width, belief) if weights.calibrated else even
            rows = self._with_cores(domain, rows, source, belief, keep)
            expected = believed(belief, rest, known)
            fit, used = self._fit(memory, rows, expected, earlier, keep)
            contradicts = contradicted(expected, fit, rest.known)
            if contradicts or contradicted(expected, fit, known):
                fit, used = self._fit(memory, rows, loosened(belief, known), earlier, keep)
                self._note_rest(domain, contradicts, keep)
        except np.linalg.LinAlgError:
            if keep:
                self._memory.pop(domain, None)
                self._note(f"{domain} power makes no sense: nothing learned")
            return self.last.get(domain)
        drifted = domain in self._memory and fit.misfit > _DRIFT_RATIO
        after = used.plus(
            fit.evidence, fit.spread, alone_in(rows, fit.value), _KEEP_DRIFTED if drifted else _KEEP
        )
        if keep:
            if drifted:
                self._note(f"{domain} power drifted")
            self._memory[domain] = after
            end_ns = int(batches[-1].energy.boundaries_ns[-1])
            memory.tell(rows, fit, end_ns)
            self._keep_rest(memory, rows, fit, end_ns, contradicts)
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
            beyond=fit.beyond.relative,
            beyond_with=fit.beyond.with_what,
            alone=after.alone.moments(belief),
            untold=fit.found.untold if fit.found.untold.any() else None,
        )
        if keep:
            for note in model.misfits(domain):
                self._note(note)
            if rows.features.any():  # who ran tells what others may draw
                self.last[domain] = model
        return model

    def _with_cores(
        self, domain: str, rows: Rows, source: Source, belief: Prior, keep: bool
    ) -> Rows:
        """The rows with what counters of single cores tell, if there are any."""
        if domain != "package" or not self.cores or not self._of_cores:
            return rows
        self.core_blocks += keep
        return with_cores(rows, self._of_cores, self.cores, source, belief)

    def _fit(
        self, memory: BlockMemory, rows: Rows, belief: Prior, earlier: DecayedEvidence, keep: bool
    ) -> tuple[BlockFit, DecayedEvidence]:
        """The fit of a block, and what it used of earlier blocks."""
        domain = memory.domain.partition("/")[0]
        calibrated = self.coefficients.of(domain).calibrated
        before = earlier.evidence
        fit, notes = memory.fit(rows, belief, before, calibrated=calibrated, keep=keep)
        for note in notes:
            self._note(note)
        if before.precision.any() and fit.misfit > _HARMS * fit.misfit_without:
            # What was learned predicts worse than the prior alone.
            earlier = DecayedEvidence.none(len(belief.mean), rows.classes)
            fit = fit_block(rows, belief, earlier.evidence)
            if keep:
                self._note(f"{domain} power is not what it was: learned anew")
        return fit, earlier

    def _note_rest(self, domain: str, contradicts: bool, keep: bool) -> None:
        """Notes that windows contradict the power at rest of earlier ones, or of the
        calibration."""
        if keep:
            was = "it was" if contradicts else "was calibrated"
            self._note(f"{domain} power at rest is not what {was}: learned anew")

    def _rest_of(self, domain: str, memory: BlockMemory) -> IdlePowerEvidence:
        """What resting blocks of this trace and of earlier ones showed of power at rest."""
        known = memory.rest()
        return known.plus(self._rest[domain]) if domain in self._rest else known

    def _keep_rest(
        self, memory: BlockMemory, rows: Rows, fit: BlockFit, end_ns: int, contradicts: bool
    ) -> None:
        """Remembers what a block showed of power at rest; of earlier ones nothing if it
        `contradicts` them."""
        domain, count = memory.domain.partition("/")[0], len(rows.edge_w)
        if contradicts:
            self._rest[domain] = told = found_by(fit, count)
        else:
            told = told_by(rows, fit)
            self._rest[domain] = told.plus(self._rest.get(domain, IdlePowerEvidence.none(count)))
        memory.tell_rest(told, fit, end_ns, anew=contradicts)

    def _earlier(self, domain: str, classes: I64, fixed: int) -> DecayedEvidence:
        """The evidence of earlier blocks about the parameters of this one."""
        known = self._memory.get(domain)
        return known.of(classes) if known else DecayedEvidence.none(fixed, classes)


def _known_everywhere(rows: Rows) -> bool:
    """Whether each zone has a row of known power."""
    return all(rows.known[rows.zone == z].any() for z in range(len(rows.edge_w)))


def _evenly(rows: Rows, period_ns: int) -> tuple[int, Rows]:
    """Rows merged so that errors at their ends do not matter, and how many became one."""
    width = settled(rows, period_ns)
    even = thinned(rows, width)
    return (width, even) if _known_everywhere(even) else (1, rows)


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


def _limit_classes(rows: Rows, prior: PowerModel) -> Rows:
    """Rows in which only the heaviest classes have factors; all others are in the last column."""
    weight = rows.features[:, :-1].sum(axis=0) @ prior.basis
    total = float(weight.sum())
    order = np.argsort(-weight, kind="stable")[:_MAX_CLASSES]
    kept = np.sort(order[weight[order] > _MIN_SHARE * total])
    rest = np.ones(rows.features.shape[1], bool)
    rest[kept] = False
    count, units = len(rows.power_w), rows.features.shape[2]
    features, busy = np.empty((count, len(kept) + 1, units)), np.empty(count)
    for first in range(0, count, _LIMITED_ROWS):  # no second copy of all features
        part = slice(first, first + _LIMITED_ROWS)
        others = rows.features[part][:, rest]
        weights = others @ prior.basis
        crowded = (weights * rows.crowd[part][:, rest]).sum(axis=1)
        busy[part] = crowded / np.maximum(weights.sum(axis=1), 1e-30)
        features[part, :-1] = rows.features[part][:, kept]
        features[part, -1] = others.sum(axis=1)
    return replace(
        rows,
        features=features,
        crowd=np.column_stack([rows.crowd[:, kept], busy]),
        classes=rows.classes[kept],
    )
