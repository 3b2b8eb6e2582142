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
    for server, found in learned.items():
        _settle(ledger, spans, server, found)


def _servers(spans: SpanSums) -> list[str]:
    labels = spans.roles.labels
    return sorted({labels[g].server for g in spans.counts if labels[g].is_counted})


def _learn(spans: SpanSums, server: str, domains: tuple[str, ...]) -> Learned:
    ran = spans.dt_ns > 0
    shapes = _most_called(spans, server)
    mine = [g for g in spans.counts if spans.roles.labels[g].server == server]
    others = sum((spans.counts[g] for g in mine if g not in shapes), start=np.zeros(len(ran)))
    others = others + spans.others.get(server, 0.0)
    # The others' cost stays in the serving rows. Without this column it would be attributed to
    # these shapes.
    columns = [spans.counts[g] for g in shapes] + ([others] if others.any() else [])
    found = Learned(shapes)
    # Calls that clients report are counted where they ended, after the work they caused. With time
    # reversed the work comes later, as it does for requests that are observed on arrival.
    by_calls = any(spans.roles.labels[g].attach_mode == BY_CALLS for g in mine)
    way = slice(None, None, -1) if by_calls else slice(None)
    for domain in (CPU_TIME, *domains):
        used = spans.used.get((server, domain))
        if used is not None and columns:
            counts = np.stack(columns, axis=1)[ran]
            told = costs(used[ran][way], counts[way], spans.dt_ns[ran][way])
            found.costs[domain] = told.take(slice(len(shapes)))
    return found


def _most_called(spans: SpanSums, server: str) -> list[int]:
    calls = {
        group: float(counts.sum())
        for group, counts in spans.counts.items()
        if spans.roles.labels[group].server == server
    }
    most = sorted(calls, key=lambda group: (-calls[group], group))[:SHAPES_MAX]
    return sorted(group for group in most if calls[group] > 0)


@dataclass(frozen=True)
class _Whom:
    """Groups that have a cost, their shapes' places, their calls in the ledger, and the groups
    of the serving rows."""

    groups: I64
    place: I64
    calls: F64
    serving: I64


def _settle(ledger: Ledger, spans: SpanSums, server: str, learned: Learned) -> None:
    labels = spans.roles.labels
    place_of = {shape: place for place, shape in enumerate(learned.shapes)}
    groups = sorted({*spans.calls, *learned.shapes})
    groups = [group for group in groups if spans.roles.shape(group) in place_of]
    place = [place_of[spans.roles.shape(group)] for group in groups]
    calls = [spans.calls.get(group, 0.0) for group in groups]
    serving = [
        number
        for number, one in enumerate(labels)
        if one.server == server and spans.roles.serves(one)
    ]
    whom = _Whom(
        np.array(groups, np.int64),
        np.array(place, np.int64),
        np.array(calls),
        np.array(serving, np.int64),
    )
    for domain, found in learned.costs.items():
        if found.reason and domain == CPU_TIME:
            note = f"{server}: joules per shape cannot be told: {found.reason}"
            ledger.remarks = (*ledger.remarks, note)
        each = found.take(whom.place)
        _give(ledger, domain, whom, each)
        if domain in (ledger.main, CPU_TIME):
            for group, told, apart in zip(groups, each.told, each.apart, strict=True):
                together = () if apart else ("not_separable",)
                untold = () if told else ("untold",)
                ledger.flags[group] = (STATISTICAL, *together, *untold)


def _give(ledger: Ledger, domain: str, whom: _Whom, found: Costs) -> None:
    """Moves the learned energy, at most all that there is, in whole units."""
    groups, serving = whom.groups, whom.serving
    sums = ledger.cpu_ns if domain == CPU_TIME else ledger.domains[domain].energy_nj
    there = int(sums[serving].sum())
    wanted = np.where(found.told, found.value * whom.calls, 0.0)
    total = min(round(float(wanted.sum())), there)
    if domain != CPU_TIME:
        _add_errors(ledger, domain, whom, found)
    if total <= 0:
        return
    given = _parts(total, wanted)
    taken = _parts(total, sums[serving])
    if domain != CPU_TIME:
        ledger.domains[domain].errors.move_common(serving, groups, given / there)
    if domain != CPU_TIME:
        shared = ledger.domains[domain].shared_nj
        part = _parts(int(shared[serving].sum()) * total // there, wanted)
        back = _parts(int(part.sum()), shared[serving])
        shared[groups] += part
        shared[serving] -= back
    sums[groups] += given
    sums[serving] -= taken


def _parts(total: int, weight: F64 | I64) -> I64:
    return apportion(np.array([total]), np.zeros(len(weight), np.int64), weight)


def _add_errors(ledger: Ledger, domain: str, whom: _Whom, found: Costs) -> None:
    """Adds the regression's errors to the error of the regressed energy, which is common to all.

    A cost that could not be learned is not zero: it may be as high as the data allow. And these
    particular requests differ from the average request, the more so the fewer they are.
    """
    sums, serving = ledger.domains[domain], whom.serving
    there = max(int(sums.energy_nj[serving].sum()), 1)
    common = float(sums.errors.model_nj[serving].sum()) / there
    of_share = float(sums.errors.share_model_nj[serving].sum()) / there
    value = np.where(found.told, found.value, 0.0)
    up, down = (found.high - value) * whom.calls, (value - found.low) * whom.calls
    if found.reason:
        up = np.full(len(whom.groups), float(there)) * (whom.calls > 0)
    up, down = np.minimum(up, there), np.maximum(down, 0.0)
    either = np.minimum(up, down)
    chance = np.sqrt(found.noise * found.value * whom.calls)
    own = np.minimum(np.hypot(either / Z95, chance), there / Z95)
    sums.errors.add("model_nj", whom.groups, np.hypot(own, common * value * whom.calls))
    sums.errors.add("share_model_nj", whom.groups, np.hypot(own, of_share * value * whom.calls))
    sums.errors.add("up_nj", whom.groups, up - either)
    sums.errors.add("down_nj", whom.groups, down - either)
    # An error of a cost is common to all groups of its shape.
    of_shape = np.bincount(whom.place, np.hypot(np.maximum(up, down) / Z95, chance))
    whole = min(float(np.sqrt((of_shape**2).sum())), there / Z95)
    for name in ("model_nj", "share_model_nj"):
        sums.errors.add(name, serving, whole * sums.energy_nj[serving] / there)
