# SPDX-License-Identifier: Apache-2.0
"""Applies the statistical mode to a ledger.

The cost of requests is learned from the ledger's spans of time. The energy of the shapes is then
taken from their server's serving rows, to the nanojoule. Costs may be learned from one ledger and
applied to another: a live view's interval is too short to learn from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import I64
from qjoule.model.interval import Z95
from qjoule.model.labels import BY_CALLS
from qjoule.model.ledger import Ledger
from qjoule.model.span_sums import CPU_TIME, SpanSums
from qjoule.model.split import apportion
from qjoule.model.statistical import Costs, costs

STATISTICAL = "statistical"  #: flag of a row whose joules come from a regression
#: number of a server's shapes with their own cost; rarer ones stay with the serving rows
SHAPES_MAX = 64


@dataclass(frozen=True)
class Learned:
    """One server: its shapes (`Roles.shape`), and the cost of a request of each, by domain."""

    shapes: list[int]
    costs: dict[str, Costs] = field(default_factory=dict)


def learn(ledger: Ledger) -> dict[str, Learned]:
    """What requests cost, by server, from everything in the ledger."""
    spans = ledger.spans
    if spans is None or not spans.counts:
        return {}
    return {server: _learn(spans, server, ledger.domain_names) for server in _servers(spans)}


def apply_regression_costs(ledger: Ledger, learned: Mapping[str, Learned]) -> None:
    """Gives shapes their part of the serving rows, flags them, and notes what could not be learned.

    Call once per ledger, because the energy moves out of the serving rows.
    """
    spans = ledger.spans
    if spans is None:
        return
    labels = spans.roles.labels
    ledger.grow(len(labels))
    for group, label in enumerate(labels):
        if label.is_counted:
            ledger.flags[group] = (STATISTICAL, "untold")
    for server, costs_of_server in learned.items():
        _apply_costs(ledger, spans, server, costs_of_server)


def _servers(spans: SpanSums) -> list[str]:
    labels = spans.roles.labels
    return sorted({labels[g].server for g in spans.counts if labels[g].is_counted})


def _learn(spans: SpanSums, server: str, domains: tuple[str, ...]) -> Learned:
    covered = spans.dt_ns > 0
    shapes = _most_called(spans, server)
    server_shapes = [g for g in spans.counts if spans.roles.labels[g].server == server]
    other_counts = sum(
        (spans.counts[g] for g in server_shapes if g not in shapes), start=np.zeros(len(covered))
    )
    other_counts = other_counts + spans.others.get(server, 0.0)
    # The others' cost stays in the serving rows. Without this column it would be attributed to
    # these shapes.
    columns = [spans.counts[g] for g in shapes] + ([other_counts] if other_counts.any() else [])
    learned = Learned(shapes)
    # Calls that clients report are counted where they ended, after the work they caused. With time
    # reversed the work comes later, as it does for requests that are observed on arrival.
    by_calls = any(spans.roles.labels[g].attach_mode == BY_CALLS for g in server_shapes)
    order = slice(None, None, -1) if by_calls else slice(None)
    for domain in (CPU_TIME, *domains):
        usage = spans.used.get((server, domain))
        if usage is not None and columns:
            counts = np.stack(columns, axis=1)[covered]
            shape_costs = costs(usage[covered][order], counts[order], spans.dt_ns[covered][order])
            learned.costs[domain] = shape_costs.take(slice(len(shapes)))
    return learned


def _most_called(spans: SpanSums, server: str) -> list[int]:
    calls = {
        group: float(counts.sum())
        for group, counts in spans.counts.items()
        if spans.roles.labels[group].server == server
    }
    most_called = sorted(calls, key=lambda group: (-calls[group], group))[:SHAPES_MAX]
    return sorted(group for group in most_called if calls[group] > 0)


@dataclass(frozen=True)
class _CostedGroups:
    """Groups with a cost (n,), the indices of their shapes among the learned ones, their calls in
    the ledger, and the groups of the serving rows."""

    groups: I64
    shape_index: I64
    calls: F64
    serving: I64


def _apply_costs(ledger: Ledger, spans: SpanSums, server: str, learned: Learned) -> None:
    labels = spans.roles.labels
    index_of = {shape: index for index, shape in enumerate(learned.shapes)}
    groups = sorted({*spans.calls, *learned.shapes})
    groups = [group for group in groups if spans.roles.shape(group) in index_of]
    index = [index_of[spans.roles.shape(group)] for group in groups]
    calls = [spans.calls.get(group, 0.0) for group in groups]
    serving = [
        number
        for number, label in enumerate(labels)
        if label.server == server and spans.roles.serves(label)
    ]
    costed = _CostedGroups(
        np.array(groups, np.int64),
        np.array(index, np.int64),
        np.array(calls),
        np.array(serving, np.int64),
    )
    for domain, domain_costs in learned.costs.items():
        if domain_costs.reason and domain == CPU_TIME:
            note = f"{server}: joules per shape cannot be told: {domain_costs.reason}"
            ledger.remarks = (*ledger.remarks, note)
        group_costs = domain_costs.take(costed.shape_index)
        _move_energy(ledger, domain, costed, group_costs)
        if domain in (ledger.main, CPU_TIME):
            for group, known, separable in zip(
                groups, group_costs.known, group_costs.separable, strict=True
            ):
                not_separable = () if separable else ("not_separable",)
                unknown = () if known else ("untold",)
                ledger.flags[group] = (STATISTICAL, *not_separable, *unknown)


def _move_energy(ledger: Ledger, domain: str, costed: _CostedGroups, group_costs: Costs) -> None:
    """Moves the learned energy from the serving rows to the groups, in whole units and at most all
    of it."""
    groups, serving = costed.groups, costed.serving
    sums = ledger.cpu_ns if domain == CPU_TIME else ledger.domains[domain].energy_nj
    available = int(sums[serving].sum())
    expected = np.where(group_costs.known, group_costs.value * costed.calls, 0.0)
    total = min(round(float(expected.sum())), available)
    if domain != CPU_TIME:
        _add_errors(ledger, domain, costed, group_costs)
    if total <= 0:
        return
    added = _apportioned(total, expected)
    removed = _apportioned(total, sums[serving])
    if domain != CPU_TIME:
        ledger.domains[domain].errors.move_common(serving, groups, added / available)
    if domain != CPU_TIME:
        shared = ledger.domains[domain].shared_nj
        shared_added = _apportioned(int(shared[serving].sum()) * total // available, expected)
        shared_removed = _apportioned(int(shared_added.sum()), shared[serving])
        shared[groups] += shared_added
        shared[serving] -= shared_removed
    sums[groups] += added
    sums[serving] -= removed


def _apportioned(total: int, weight: F64 | I64) -> I64:
    return apportion(np.array([total]), np.zeros(len(weight), np.int64), weight)


def _add_errors(ledger: Ledger, domain: str, costed: _CostedGroups, group_costs: Costs) -> None:
    """Adds the regression's errors to the error of the serving rows' energy, which all groups
    share.

    A cost that could not be learned is not zero: it may be as high as the data allow. And these
    particular requests differ from the average request, the more so the fewer they are.
    """
    sums, serving = ledger.domains[domain], costed.serving
    available = max(int(sums.energy_nj[serving].sum()), 1)
    relative_error = float(sums.errors.model_nj[serving].sum()) / available
    relative_share_error = float(sums.errors.share_model_nj[serving].sum()) / available
    value = np.where(group_costs.known, group_costs.value, 0.0)
    up_nj, down_nj = (
        (group_costs.high - value) * costed.calls,
        (value - group_costs.low) * costed.calls,
    )
    if group_costs.reason:
        up_nj = np.full(len(costed.groups), float(available)) * (costed.calls > 0)
    up_nj, down_nj = np.minimum(up_nj, available), np.maximum(down_nj, 0.0)
    symmetric_nj = np.minimum(up_nj, down_nj)
    random_nj = np.sqrt(group_costs.noise * group_costs.value * costed.calls)
    own_nj = np.minimum(np.hypot(symmetric_nj / Z95, random_nj), available / Z95)
    sums.errors.add(
        "model_nj", costed.groups, np.hypot(own_nj, relative_error * value * costed.calls)
    )
    sums.errors.add(
        "share_model_nj",
        costed.groups,
        np.hypot(own_nj, relative_share_error * value * costed.calls),
    )
    sums.errors.add("up_nj", costed.groups, up_nj - symmetric_nj)
    sums.errors.add("down_nj", costed.groups, down_nj - symmetric_nj)
    # An error of a cost is common to all groups of its shape.
    shape_nj = np.bincount(
        costed.shape_index, np.hypot(np.maximum(up_nj, down_nj) / Z95, random_nj)
    )
    total_error_nj = min(float(np.sqrt((shape_nj**2).sum())), available / Z95)
    for name in ("model_nj", "share_model_nj"):
        sums.errors.add(name, serving, total_error_nj * sums.energy_nj[serving] / available)
