# SPDX-License-Identifier: Apache-2.0
"""The learned power models as the values, flags and notes of a result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.model.coefficients import THETA
from qjoule.model.energy import I64
from qjoule.model.interval import Z95
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.nonnegative import covariance
from qjoule.model.power_model import PowerModel
from qjoule.model.result import AloneTime, ModelInfo

#: A factor counts as learned if its uncertainty is less than this share of the uncertainty before.
_LEARNED = 0.8
#: Two factors cannot be separated if their partial correlation is below the first, and if more than
#: the second of the prior uncertainty is left.
_INSEPARABLE = -0.8
_UNKNOWN_SHARE = 0.4
_MOST_NAMES = 5  #: pairs that a note names
_TAILS_SHARE = 0.05  #: share of power at rest that may be tails without a note


@dataclass(frozen=True)
class Findings:
    """Properties of each group in the last block's model of the main domain."""

    model: PowerModel | None
    column: I64  #: of each group's class in the model, -1 without
    partner: I64  #: for each class of the model, the column it cannot be separated from; -1: none

    @staticmethod
    def of(ledger: Ledger) -> Findings:
        model = ledger.models.get(ledger.main)
        if model is None:
            nothing = np.zeros(0, np.int64)
            return Findings(None, np.full(ledger.groups, -1, np.int64), nothing)
        column = model.column(ledger.class_of(np.arange(ledger.groups)))
        return Findings(model, column, _partners(model))

    def power_factor(self, group: int) -> tuple[float, float, float] | None:
        """A group's power as a multiple of its weight, with its 95 % interval; None if it was not
        learned."""
        column = int(self.column[group])
        if self.model is None or column < 0:
            return None
        value, sigma = float(self.model.factor[column]), self.model.factor_sigma(column)
        if self.partner[column] >= 0 or sigma >= _LEARNED * self.model.spread:
            return None
        return value, max(value - Z95 * sigma, 0.0), value + Z95 * sigma

    def alone(self, group: int) -> AloneTime | None:
        """How long a group ran alone, and the information of that time; None: never."""
        column = int(self.column[group])
        if self.model is None or self.model.alone is None or column < 0:
            return None
        moments = self.model.alone
        alone_s, information_nats = (
            float(moments.alone_s[column]),
            float(moments.information_nats[column]),
        )
        return AloneTime(alone_s, information_nats) if alone_s > 0 else None

    def flags(self, group: int) -> tuple[str, ...]:
        column = int(self.column[group])
        return ("not_separable",) if column >= 0 and self.partner[column] >= 0 else ()

    def notes(self, labels: Sequence[GroupLabel]) -> list[str]:
        """Names the groups whose powers cannot be separated."""
        pairs = {
            tuple(sorted((column_a, int(column_b))))
            for column_a, column_b in enumerate(self.partner)
            if column_b >= 0
        }
        first = {int(column): g for g, column in reversed(list(enumerate(self.column)))}
        names = [
            " and ".join(_name(labels[first[column_index]]) for column_index in pair)
            for pair in sorted(pairs)
            if all(
                column_index in first and first[column_index] < len(labels) for column_index in pair
            )
        ]
        sentences = [
            f"{name} always ran together: their power cannot be told apart" for name in names
        ]
        more_pairs = len(sentences) - _MOST_NAMES
        return sentences[:_MOST_NAMES] + (
            [f"so did {more_pairs} more pairs"] if more_pairs > 0 else []
        )


def _partners(model: PowerModel) -> I64:
    """For each factor, the column it is most confused with; -1 if it can be separated."""
    partner = np.full(len(model.classes), -1, np.int64)
    if not model.learned or len(model.classes) < 2:
        return partner
    # Covariance of the factors with the machine's coefficients held fixed. Otherwise the
    # coefficients, which move all factors alike, would hide confused pairs, or suggest some where
    # only the sums with the coefficients are well known.
    precision = covariance(model.covariance)[model.fixed :, model.fixed :]
    width = np.sqrt(np.maximum(np.diag(precision), 1e-300))
    partial_correlation = -precision / np.outer(width, width)
    np.fill_diagonal(partial_correlation, 1.0)
    sigma = 1.0 / (width * np.sqrt(np.maximum(1.0 - partial_correlation.min(axis=1) ** 2, 1e-12)))
    nearest = partial_correlation.argmin(axis=1)
    inseparable = (partial_correlation.min(axis=1) < _INSEPARABLE) & (
        sigma > _UNKNOWN_SHARE * model.spread
    )
    partner[inseparable] = nearest[inseparable]
    return partner


def _name(label: GroupLabel) -> str:
    return label.shape or ", ".join(value for _, value in label.keys) or label.kind


def model_info(
    ledger: Ledger, notes: Sequence[str], grade: str, total_errors: Mapping[str, float]
) -> ModelInfo:
    """The coefficients that split the last windows, and the notes on them.

    `total_errors`: relative 95 % errors of the totals, by domain, the main one first.
    """
    coefficients, model = ledger.coefficients, ledger.models.get(ledger.main)
    weights = coefficients.main_weights
    values = dict(zip(THETA, weights.vector, strict=True))
    values["weight_error"] = coefficients.weight_error
    for (package, domain), power in sorted(coefficients.idle_w.items()):
        values[f"idle_w.{domain}.{package}"] = power.value_w
    for (package, domain), watts in sorted(coefficients.shared_w.items()):
        values[f"shared_w.{domain}.{package}"] = watts
    if model is not None and model.learned:
        values |= dict(zip(THETA, model.theta.tolist(), strict=True))
        values["weight_error"] = Z95 * model.spread
    for domain, learned in sorted(ledger.models.items()):
        if learned.learned and domain not in ledger.left_out:
            for z, zone in enumerate(ledger.zones[domain]):
                values[f"idle_w.{domain}.{zone.package}"] = float(learned.idle_w[z])
                values[f"shared_w.{domain}.{zone.package}"] = float(learned.shared_w[z])
    return ModelInfo(
        weight="counters" if ledger.used_counters else "cpu_time",
        coefficients=values,
        calibrated=coefficients.calibrated,
        held_out_error=coefficients.held_out_error,
        notes=(*_notes(ledger, grade, total_errors), *notes),
    )


def _notes(ledger: Ledger, grade: str, total_errors: Mapping[str, float]) -> list[str]:
    """Notes that a reader needs to judge the intervals."""
    if not ledger.series:
        return ["no energy source: only CPU time and latency are known"]
    coefficients, notes = ledger.coefficients, []
    model = ledger.models.get(ledger.main)
    learned = model is not None and model.learned
    if not coefficients.calibrated and not learned:
        notes.append(
            f"weights are taken to be within ±{coefficients.weight_error:.0%}, "
            "the same for all calls of a statement"
        )
    if model is not None and learned:
        notes += _learned_notes(ledger, model)
    elif not any(domain == ledger.main for _, domain in coefficients.idle_w):
        notes.append(
            "idle power is unknown: whoever ran pays for the whole window, intervals reach down "
            "to what is left if idle CPUs draw like busy ones"
        )
    for domain, error in total_errors.items():
        if error > 0:
            name = "total" if domain == ledger.main else f"total of {domain}"
            notes.append(f"the {grade} {name} is taken to be within ±{error:.0%}")
    if not ledger.used_counters:
        notes.append("no hardware counters: SMT and memory-bound work weigh like any CPU time")
        if "dram" in ledger.shown_names:
            notes.append("DRAM energy is split by CPU time: LLC misses were not counted")
    notes += [f"{name} ({times} times)" for name, times in sorted(ledger.notes.items())]
    return notes


def _learned_notes(ledger: Ledger, model: PowerModel) -> list[str]:
    """Notes on the learned power at rest with its interval, and on tails that cannot be separated
    from it."""
    parts, tails_unknown = [], False
    for z, zone in enumerate(ledger.zones[ledger.main]):
        value, sigma = float(model.idle_w[z]), float(model.covariance[z, z]) ** 0.5
        tails_w = 0.0 if model.one_sided is None else max(-float(model.one_sided[z]), 0.0)
        low, high = max(value - math.hypot(Z95 * sigma, tails_w), 0.0), value + Z95 * sigma
        parts.append(f"{value:.2f} W [{low:.2f}, {high:.2f}] of {ledger.main} {zone.package}")
        tails_unknown |= tails_w > _TAILS_SHARE * value
    source = "calibration and windows" if ledger.coefficients.calibrated else "windows alone"
    notes = [f"power at rest, learned from {source}: {'; '.join(parts)}"]
    if tails_unknown:
        notes.append(
            "the machine never slept for long: some of its power at rest may linger after queries, "
            "who would then draw more; a minute in which the machine idles would tell most"
        )
    return notes
