# SPDX-License-Identifier: Apache-2.0
"""Adds up the evidence of cells, integrates parameters out of it, and folds old cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import F64
from qjoule.model.energy import I64
from qjoule.model.fit.cells import HALF_LIFE_S, MAX_MEMBERS, REST, U64, Cell, MemoryReport

#: When a shape is integrated out of a cell that is folded, it may be this many times further from 1
#: than was believed. So the evidence that is left on the machine's coefficients is too small rather
#: than too large.
_WIDER = 30.0
#: Power at rest is the same on two days to within this (1 sigma): leakage follows temperature.
_SAME = 0.02


class Gone(NamedTuple):
    """Parameters to integrate out: where they are, and the precision and mean of their prior."""

    at: I64
    weight: F64
    mean: F64


def restricted(
    cell: Cell, names: Sequence[str], keys: U64, void: U64 | None = None
) -> MemoryReport:
    """Evidence of a cell on `names` and `keys`; the others are integrated out.

    A shape in `keys` but not in the cell has none. `void`: shapes whose evidence in this cell does
    not count.
    """
    f = len(cell.names)
    here = np.isin(cell.keys, keys)
    if void is not None and len(void):
        here &= ~np.isin(cell.keys, void)
    fixed, moment_f, own, cross, moment_g = _without_shapes(cell, here)
    taken = [i for i, name in enumerate(cell.names) if name in names]
    gone = [i for i in range(f) if i not in taken]
    precision = np.block([[fixed, cross.T], [cross, own]])
    moment = np.concatenate([moment_f, moment_g])
    if gone:
        stays = np.array([*taken, *range(f, len(moment))], np.int64)
        sigma = np.maximum(np.abs(cell.value[gone]), 1e-9)
        told = integrated(
            MemoryReport(precision, moment),
            stays,
            Gone(np.array(gone), sigma**-2, cell.value[gone]),
        )
        precision, moment = told
    at = np.concatenate(
        [
            np.array([names.index(cell.names[i]) for i in taken], np.int64),
            len(names) + np.searchsorted(keys, cell.keys[here]).astype(np.int64),
        ]
    ).astype(np.int64)
    size = len(names) + len(keys)
    out = MemoryReport(np.zeros((size, size)), np.zeros(size))
    out.precision[np.ix_(at, at)] = precision
    out.moment[at] = moment
    return out


def _without_shapes(cell: Cell, here: npt.NDArray[np.bool_]) -> tuple[F64, F64, F64, F64, F64]:
    """fixed, its moment, own (g, g), cross, their moment; shapes not `here` are integrated out."""
    f, prior = len(cell.names), cell.spread**-2.0
    moment_f, moment_g = cell.moment[:f], cell.moment[f:]
    gone = ~here
    if not cell.folded:
        precision = np.block([[cell.fixed, cell.cross.T], [cell.cross, cell.own]])
        stays = np.append(np.arange(f), f + np.flatnonzero(here))
        out = f + np.flatnonzero(gone)
        weight = np.full(len(out), prior)
        told = integrated(
            MemoryReport(precision, cell.moment), stays, Gone(out, weight, np.ones(len(out)))
        )
        return (
            told.precision[:f, :f],
            told.moment[:f],
            told.precision[f:, f:],
            told.precision[f:, :f],
            told.moment[f:],
        )
    rows, total = cell.cross[gone], cell.own[gone] + prior
    return (
        cell.fixed - (rows / total[:, None]).T @ rows,
        moment_f - ((moment_g[gone] + prior) / total) @ rows,
        np.diag(cell.own[here]),
        cell.cross[here],
        moment_g[here],
    )


def integrated(told: MemoryReport, stays: I64, gone: Gone) -> MemoryReport:
    """Evidence on the parameters `stays`; those `gone` are integrated out, under a prior."""
    precision, moment = told
    if not len(gone.at):
        return MemoryReport(precision[np.ix_(stays, stays)], moment[stays])
    own = precision[np.ix_(gone.at, gone.at)] + np.diag(gone.weight)
    cross = precision[np.ix_(stays, gone.at)]
    start = moment[gone.at] + gone.weight * gone.mean
    solved = np.linalg.solve(own, np.column_stack([cross.T, start]))
    return MemoryReport(
        precision[np.ix_(stays, stays)] - cross @ solved[:, :-1],
        moment[stays] - cross @ solved[:, -1],
    )


def arrow(cell: Cell) -> Cell:
    """The cell without precision between shapes; it never tells more than before.

    With M the inverse of the shapes' precision, each shape keeps 1 / (most * M_ii), where `most` is
    the largest eigenvalue of M's correlations: these precisions, as a diagonal, are below the whole
    matrix. What the shapes together tell of the fixed parameters stays.
    """
    if cell.folded:
        return cell
    f, g = len(cell.names), len(cell.keys)
    if not g:
        return replace(cell, own=np.zeros(0))
    prior = (_WIDER * cell.spread) ** -2.0
    inverse = np.linalg.inv(cell.own + prior * np.eye(g))
    width = np.sqrt(np.maximum(np.diag(inverse), 1e-300))
    alike = (inverse / np.outer(width, width)).astype(np.float32)
    most = max(1.001 * float(np.linalg.eigvalsh(alike)[-1]), 1.0)
    own = np.maximum(1.0 / (most * width**2) - prior, 0.0)
    slope = -inverse @ cell.cross  # the shapes' factors as a function of the fixed parameters
    start = inverse @ (cell.moment[f:] + prior)
    fixed = cell.fixed + cell.cross.T @ slope
    moment = cell.moment[:f] - cell.cross.T @ start
    return cell.holding(
        fixed + (slope * own[:, None]).T @ slope,
        -own[:, None] * slope,
        own,
        np.append(moment - (own * start) @ slope, own * start),
    )


def scaled(cell: Cell, share: float) -> Cell:
    """The cell with this share of its evidence."""
    return replace(
        cell,
        fixed=cell.fixed * share,
        cross=cell.cross * share,
        own=cell.own * share,
        centred=cell.centred * share,
    )


def folded(cells: Sequence[Cell]) -> Cell:
    """One cell of several of one domain and one set of conditions, of the age of the youngest.

    Those from before the machine changed leave their ids alone.
    """
    members = np.unique(np.concatenate([cell.members for cell in cells]))[-MAX_MEMBERS:]
    cells = since_anew(cells)
    anew = any(cell.anew for cell in cells)
    when_s = max(cell.when_s for cell in cells)
    names = tuple(sorted({name for cell in cells for name in cell.names}))
    keys = np.unique(np.concatenate([cell.keys for cell in cells]))
    f, g = len(names), len(keys)
    fixed, cross, own, moment = np.zeros((f, f)), np.zeros((g, f)), np.zeros(g), np.zeros(f + g)
    value, weight = np.zeros(f), np.zeros(f)
    releases, fresh = np.zeros(g, np.uint64), np.zeros(g, bool)
    since = changed_since(cells)
    for cell in sorted(cells, key=lambda one: (one.when_s, int(one.members[0]))):
        void = outdated(cell, since)
        if len(void):
            cell = without(cell, void)  # noqa: PLW2901
        one = scaled(arrow(cell), 0.5 ** ((when_s - cell.when_s) / HALF_LIFE_S))
        at = np.array([names.index(name) for name in one.names], np.int64)
        to = np.searchsorted(keys, one.keys)
        fixed[np.ix_(at, at)] += one.fixed
        cross[np.ix_(to, at)] += one.cross
        own[to] += one.own
        moment[at] += one.moment[: len(at)]
        moment[f + to] += one.moment[len(at) :]
        known = np.maximum(np.diag(one.fixed), 1e-300)
        value[at] += known * one.value
        weight[at] += known
        releases[to] = one.releases
        fresh[to] |= one.fresh
    whole = Cell(
        max(cells, key=lambda cell: cell.rank).source,
        cells[0].domain,
        when_s,
        cells[0].conditions,
        names,
        value / np.maximum(weight, 1e-300),
        keys,
        releases,
        fresh,
        fixed,
        cross,
        own,
        moment,
        max(cell.spread for cell in cells),
        members,
        anew,
    )
    return whole.holding(fixed, cross, own, moment).stored()


def without(cell: Cell, keys: U64) -> Cell:
    """The cell with these shapes integrated out."""
    here = ~np.isin(cell.keys, keys)
    fixed, moment_f, own, cross, moment_g = _without_shapes(cell, here)
    fewer = replace(
        cell, keys=cell.keys[here], releases=cell.releases[here], fresh=cell.fresh[here]
    )
    own = np.diag(own).copy() if cell.folded else own
    return fewer.holding(fixed, cross, own, np.append(moment_f, moment_g))


def changed_since(cells: Iterable[Cell]) -> dict[int, float]:
    """When each shape that changed did so last, in seconds since 1970."""
    since: dict[int, float] = {}
    for cell in cells:
        for key in cell.keys[cell.fresh].tolist():
            since[key] = max(since.get(key, cell.when_s), cell.when_s)
    return since


def since_anew(cells: Iterable[Cell]) -> list[Cell]:
    """The cells of one domain since its machine changed last.

    One trace alone does not make power at rest another one: its counter may have been wrong. It
    counts only if a later trace shows the same, or if there is nothing of other traces before it.
    """
    found = list(cells)
    alone = [cell for cell in found if cell.anew and not _confirmed(cell, found)]
    if len(alone) < len(found):
        found = [cell for cell in found if not any(cell is one for one in alone)]
    begin_s = max((cell.when_s for cell in found if cell.anew), default=0.0)
    return [cell for cell in found if cell.when_s >= begin_s]


def _confirmed(cell: Cell, cells: Sequence[Cell]) -> bool:
    """Whether the change that a cell reports is also seen in another trace, if it needs to be: a
    trace may correct what it alone has told.
    """
    if not cell.domain.endswith(REST) or len(cell.members) > 1:
        return True
    if all(one.source == cell.source for one in cells if one.when_s <= cell.when_s):
        return True
    later = (one for one in cells if one.source != cell.source and one.when_s >= cell.when_s)
    return any(_agree(cell, one) for one in later)


def _agree(one: Cell, other: Cell) -> bool:
    """Whether two cells tell the same of the power at rest of the packages that both know."""
    both = [name for name in one.names if name in other.names]
    told = []
    for cell in (one, other):
        at = [cell.names.index(name) for name in both]
        precision = np.maximum(np.diag(cell.fixed)[at], 1e-300)
        value = cell.moment[at] / precision
        told.append((value, np.hypot(precision**-0.5, _SAME * value)))
    (a, a_sigma), (b, b_sigma) = told
    return bool(both) and bool((np.abs(a - b) <= 3.0 * np.hypot(a_sigma, b_sigma)).all())


def outdated(cell: Cell, since: dict[int, float]) -> U64:
    """The shapes of a cell that have changed since."""
    if not since:
        return np.zeros(0, np.uint64)
    old = [key for key in cell.keys.tolist() if since.get(key, cell.when_s) > cell.when_s]
    return np.array(old, np.uint64)
