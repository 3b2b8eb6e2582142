# SPDX-License-Identifier: Apache-2.0
"""Learns a machine's power from a trace, block by block; the evidence of earlier blocks decays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from qjoule.model.arrays import F64, Renumbering, WindowBatch
from qjoule.model.coefficients import THETA, Coefficients, IdleTable
from qjoule.model.energy import I64, Bool, Series
from qjoule.model.fit.averaged import Prior
from qjoule.model.fit.beliefs import belief_of, sleeps_deep, with_long_tails
from qjoule.model.fit.block import BlockFit, fit_block, rest_drift, with_unaided_error
from qjoule.model.fit.core_evidence import with_cores
from qjoule.model.fit.earlier_blocks import (
    DecayedEvidence,
    IdlePowerEvidence,
    contradicts_prior,
    fitted_idle_power,
    resting_evidence,
    rests,
    with_idle_evidence,
    with_wider_idle,
)
from qjoule.model.fit.merging import informative_rows, settled_rows, spread_out
from qjoule.model.fit.observed import Rows
from qjoule.model.fit.remembered import Memory
from qjoule.model.fit.rows import ClassOf, Source, itself, limited, make_rows
from qjoule.model.fit.solo import alone_in
from qjoule.model.fit.with_memory import BlockMemory
from qjoule.model.per_core import CoreCounters
from qjoule.model.power_model import PowerModel
from qjoule.model.slow import slow_of
from qjoule.model.zones import left_out, zones

#: Share of a block's evidence that is kept at the end of the next: a minute at blocks of 30 s.
_KEEP = 0.7
_KEEP_DRIFTED = 0.2
_UNTESTED = 2.0  #: factor on the model error without a calibration
#: Fewer windows cannot separate power at rest from shared power. They are used only if a memory has
#: evidence, or if nothing ran.
_MIN_WINDOWS = 25
#: If the model of earlier blocks predicts a block this many times worse than its own fit: drift.
_DRIFT_RATIO = 1.5
#: The evidence of earlier blocks is dropped if it predicts a block this many times worse than the
#: prior.
_HARMS = 1.1
_CORES_UNUSED = "counters of single cores are not used"


class _KnownRest(NamedTuple):
    """Power at rest: what resting blocks tell, and the zones (n,) of which a calibration tells."""

    evidence: IdlePowerEvidence
    calibrated: Bool


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
    _decayed: dict[str, DecayedEvidence] = field(default_factory=dict)
    _idle: dict[str, IdlePowerEvidence] = field(
        default_factory=dict
    )  #: evidence of this trace's resting blocks

    def __post_init__(self) -> None:
        self._of_cores: WindowBatch | None = None  #: of the block that is learned from

    def learn(
        self,
        batches: Sequence[WindowBatch],
        *,
        keep: bool,
        of_cores: WindowBatch | None = None,
    ) -> dict[str, PowerModel]:
        """Returns models by domain for one block of consecutive windows. `keep`: also use the
        block's evidence for later blocks. `of_cores`: windows of `cores` in the same time."""
        self._of_cores = None
        if self.cores and of_cores:
            self._of_cores, reason = self.cores.usable(of_cores, batches, self.series)
            if keep and reason:
                self._note(f"{_CORES_UNUSED}: {reason}")
        models = {}
        domains = tuple(dict.fromkeys(s.domain for s in self.series))
        invalid = left_out(batches, self.series)
        for domain in domains:
            if domain in invalid:
                continue
            if (model := self._learn(domain, batches, keep)) is not None:
                models[domain] = model
        return models

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the classes; evidence on classes that were merged with others is dropped."""
        self.last = {name: model.renumbered(renumbering) for name, model in self.last.items()}
        self._decayed = {
            name: evidence.renumbered(renumbering) for name, evidence in self._decayed.items()
        }

    def _note(self, text: str) -> None:
        self.notes[text] = self.notes.get(text, 0) + 1

    def _learn(self, domain: str, batches: Sequence[WindowBatch], keep: bool) -> PowerModel | None:
        domain_zones, weights = (
            zones(self.series, self.packages, domain),
            self.coefficients.of(domain),
        )
        slow = slow_of([self.series[s] for zone in domain_zones for s in zone.series])
        # The half widths already contain all uncertainty of a slow counter's ends.
        period_ns = 0 if slow else self.period_ns
        source = Source(self.series, domain_zones, weights, self.class_of, period_ns)
        rows, counters = make_rows(batches, source)
        packages = [zone.package for zone in domain_zones]
        prior = PowerModel.of(self.coefficients, domain, packages, counters=counters)
        if not rows.known_everywhere:
            return self.last.get(domain)
        class_rows = limited(rows, prior.basis)
        if not weights.calibrated:
            class_rows = replace(class_rows, model_error=_UNTESTED * class_rows.model_error)
        width, even = settled_rows(class_rows, period_ns)
        weights = self.coefficients.of(domain, counters=counters)
        memory = BlockMemory.of(self.memory, domain, domain_zones, counters=counters)
        rest = _KnownRest(self._idle_evidence_of(domain, memory), np.isfinite(prior.idle_w))
        belief = belief_of(
            prior,
            even,
            weights,
            dram=domain == "dram",
            table=self.table,
            long_tails=bool(rest.evidence.known.all()),
            rests=rests(even),
            remembered=bool(rest.evidence.known.any()) or memory.has_evidence(class_rows.classes),
        )
        too_few = int(rows.known.sum()) < _MIN_WINDOWS * len(domain_zones) and rows.features.any()
        if too_few and not memory.has_evidence(class_rows.classes):
            return self.last.get(domain)
        earlier = self._evidence_for(domain, class_rows.classes, len(belief.mean))
        try:
            # Without a calibration, priors do not show well enough what merging would lose.
            rows = informative_rows(class_rows, even, width, belief) if weights.calibrated else even
            rows = self._with_cores(domain, rows, source, belief, keep)
            fit, earlier_used, contradicts = self._fit_rest(
                memory, rows, belief, rest, earlier, keep=keep
            )
        except np.linalg.LinAlgError:
            if keep:
                self._decayed.pop(domain, None)
                self._note(f"{domain} power makes no sense: nothing learned")
            return self.last.get(domain)
        drifted = domain in self._decayed and fit.misfit > _DRIFT_RATIO
        updated = earlier_used.plus(
            fit.evidence, fit.spread, alone_in(rows, fit.value), _KEEP_DRIFTED if drifted else _KEEP
        )
        if keep:
            if drifted:
                self._note(f"{domain} power drifted")
            self._decayed[domain] = updated
            end_ns = int(batches[-1].energy.boundaries_ns[-1])
            memory.learn(rows, fit, end_ns)
            self._remember_idle(memory, rows, fit, end_ns, contradicts)
        drift = rest_drift(class_rows, spread_out(fit.drift_w, rows, class_rows), fit)
        covariance = fit.covariance.copy()
        index = np.arange(len(domain_zones))
        covariance[index, index] += drift.variance_w2
        model = PowerModel(
            *_rounded_parameters(fit.value, len(domain_zones)),
            rows.classes,
            fit.value[len(belief.mean) :].astype(np.float32).astype(np.float64),
            covariance,
            fit.spread,
            learned=True,
            drift_w=drift.rest_w[:, :0] if slow else drift.rest_w,
            first=batches[0].first,
            unexplained=fit.unexplained.relative,
            unexplained_with=fit.unexplained.contexts,
            alone=updated.alone.moments(belief),
            one_sided=fit.estimate.one_sided if fit.estimate.one_sided.any() else None,
        )
        if keep:
            for note in model.misfits(domain):
                self._note(note)
            if rows.features.any():  # a block in which nothing ran does not replace the model
                self.last[domain] = model
        return model

    def _with_cores(
        self, domain: str, rows: Rows, source: Source, belief: Prior, keep: bool
    ) -> Rows:
        """The rows with the evidence of single cores' counters, if there are any."""
        if domain != "package" or not self.cores or not self._of_cores:
            return rows
        self.core_blocks += keep
        return with_cores(rows, self._of_cores, self.cores, source, belief)

    def _fit_rest(
        self,
        memory: BlockMemory,
        rows: Rows,
        belief: Prior,
        rest: _KnownRest,
        earlier: DecayedEvidence,
        *,
        keep: bool,
    ) -> tuple[BlockFit, DecayedEvidence, bool]:
        """As `_fit`, with what is known of power at rest, as long as windows do not contradict it;
        and whether they contradict that of earlier blocks."""
        expected = with_idle_evidence(belief, rest.evidence, rest.calibrated)
        fit, used = self._fit(memory, rows, expected, earlier, keep)
        contradicts = contradicts_prior(expected, fit, rest.evidence.known)
        domain = memory.domain.partition("/")[0]
        has_tails = domain != "dram" and sleeps_deep(self.table)
        if has_tails and not contradicts and contradicts_prior(expected, fit, rest.calibrated):
            tails = with_long_tails(expected, rows, len(rest.calibrated))
            fit, used = self._fit(memory, rows, tails, earlier, keep)
        if contradicts or contradicts_prior(expected, fit, rest.calibrated):
            wider = with_wider_idle(belief, rest.calibrated)
            fit, used = self._fit(memory, rows, wider, earlier, keep)
            self._note_idle_change(domain, contradicts, keep)
        return fit, used, contradicts

    def _fit(
        self, memory: BlockMemory, rows: Rows, belief: Prior, earlier: DecayedEvidence, keep: bool
    ) -> tuple[BlockFit, DecayedEvidence]:
        """The fit of a block, and the evidence of earlier blocks that it used."""
        domain = memory.domain.partition("/")[0]
        calibrated = self.coefficients.of(domain).calibrated
        before = earlier.evidence
        fit, notes = memory.fit(rows, belief, before, calibrated=calibrated, keep=keep)
        for note in notes:
            self._note(note)
        if before.precision.any() and fit.misfit > _HARMS * fit.misfit_without:
            # The evidence of earlier blocks predicts worse than the prior alone.
            earlier = DecayedEvidence.none(len(belief.mean), rows.classes)
            fit = fit_block(rows, belief, earlier.evidence)
            if keep:
                self._note(f"{domain} power is not what it was: learned anew")
        return with_unaided_error(fit, belief), earlier

    def _note_idle_change(self, domain: str, contradicts: bool, keep: bool) -> None:
        """Notes that windows contradict the power at rest of earlier blocks (`contradicts`) or of
        the calibration."""
        if keep:
            was = "it was" if contradicts else "was calibrated"
            self._note(f"{domain} power at rest is not what {was}: learned anew")

    def _idle_evidence_of(self, domain: str, memory: BlockMemory) -> IdlePowerEvidence:
        """Evidence of resting blocks, of this trace and of earlier ones, on power at rest."""
        remembered = memory.idle_evidence()
        return remembered.plus(self._idle[domain]) if domain in self._idle else remembered

    def _remember_idle(
        self, memory: BlockMemory, rows: Rows, fit: BlockFit, end_ns: int, contradicts: bool
    ) -> None:
        """Stores a block's evidence on power at rest. It replaces that of earlier blocks if it
        `contradicts` them."""
        domain, count = memory.domain.partition("/")[0], len(rows.edge_w)
        if contradicts:
            self._idle[domain] = block_evidence = fitted_idle_power(fit, count)
        else:
            block_evidence = resting_evidence(rows, fit)
            self._idle[domain] = block_evidence.plus(
                self._idle.get(domain, IdlePowerEvidence.none(count))
            )
        memory.learn_idle(block_evidence, fit, end_ns, anew=contradicts)

    def _evidence_for(self, domain: str, classes: I64, fixed: int) -> DecayedEvidence:
        """The evidence of earlier blocks on the parameters of this block."""
        earlier = self._decayed.get(domain)
        return earlier.of(classes) if earlier else DecayedEvidence.none(fixed, classes)


def _rounded_parameters(value: F64, count: int) -> tuple[F64, F64, F64]:
    """Idle power, shared power and theta, rounded to single precision so that the solver's last bit
    changes no nanojoule."""
    rounded = value.astype(np.float32).astype(np.float64)
    return rounded[:count], rounded[count : 2 * count], rounded[2 * count : 2 * count + len(THETA)]
