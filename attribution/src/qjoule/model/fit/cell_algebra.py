# SPDX-License-Identifier: Apache-2.0
"""Adds up the evidence of cells, integrates parameters out of it, and folds old cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import F64
from qjoule.model.fit.cells import HALF_LIFE_S, MAX_MEMBERS, REST, U64, Cell
from qjoule.model.fit.evidence import Evidence, Nuisance

#: When a shape is integrated out of a cell that is folded, its factor may be this many times
#: further from 1 than its prior says. So the remaining evidence on the machine's coefficients is
#: too small rather than too large.
_FOLDED_WIDENING = 30.0
#: Relative change of power at rest from one day to another (1 sigma): leakage follows temperature.
_DAY_TO_DAY = 0.02


def restricted(cell: Cell, names: Sequence[str], keys: U64, void: U64 | None = None) -> Evidence:
    """Evidence of a cell on `names` and `keys`; the others are integrated out.

    Shapes in `keys` that the cell lacks get no evidence. `void`: shapes whose evidence in this cell
    is ignored.
    """
    f = len(cell.names)
    retained = np.isin(cell.keys, keys)
    if void is not None and len(void):
        retained &= ~np.isin(cell.keys, void)
    fixed, moment_f, own, cross, moment_g = _without_shapes(cell, retained)
    name_columns = [i for i, name in enumerate(cell.names) if name in names]
    eliminated = [i for i in range(f) if i not in name_columns]
    evidence = Evidence(
        np.block([[fixed, cross.T], [cross, own]]), np.concatenate([moment_f, moment_g])
    )
    remaining = np.array([*name_columns, *range(f, len(evidence.moment))], np.int64)
    sigma = np.maximum(np.abs(cell.value[eliminated]), 1e-9)
    nuisance = Nuisance(np.array(eliminated, np.int64), sigma**-2, cell.value[eliminated])
    evidence, _ = evidence.marginal(remaining, nuisance)
    target = np.concatenate(
        [
            np.array([names.index(cell.names[i]) for i in name_columns], np.int64),
            len(names) + np.searchsorted(keys, cell.keys[retained]).astype(np.int64),
        ]
    ).astype(np.int64)
    result = Evidence.none(len(names) + len(keys))
    result.precision[np.ix_(target, target)] = evidence.precision
    result.moment[target] = evidence.moment
    return result


def _without_shapes(cell: Cell, retained: npt.NDArray[np.bool_]) -> tuple[F64, F64, F64, F64, F64]:
    """Returns fixed, its moment, own (g, g), cross, and their moment; all shapes but those of
    `retained` are integrated out."""
    f, prior = len(cell.names), cell.spread**-2.0
    moment_f, moment_g = cell.moment[:f], cell.moment[f:]
    eliminated = ~retained
    if not cell.folded:
        precision = np.block([[cell.fixed, cell.cross.T], [cell.cross, cell.own]])
        remaining = np.append(np.arange(f), f + np.flatnonzero(retained))
        nuisance = Nuisance(f + np.flatnonzero(eliminated), prior, 1.0)
        marginal, _ = Evidence(precision, cell.moment).marginal(remaining, nuisance)
        return (
            marginal.precision[:f, :f],
            marginal.moment[:f],
            marginal.precision[f:, f:],
            marginal.precision[f:, :f],
            marginal.moment[f:],
        )
    rows, shape_precision = cell.cross[eliminated], cell.own[eliminated] + prior
    return (
        cell.fixed - (rows / shape_precision[:, None]).T @ rows,
        moment_f - ((moment_g[eliminated] + prior) / shape_precision) @ rows,
        np.diag(cell.own[retained]),
        cell.cross[retained],
        moment_g[retained],
    )


def arrow(cell: Cell) -> Cell:
    """The cell without precision between shapes. Its evidence never increases.

    With M the inverse of the shapes' precision, each shape keeps 1 / (most * M_ii), where `most` is
    the largest eigenvalue of M's correlations: these precisions, as a diagonal, are below the whole
    matrix. The evidence of all shapes together on the fixed parameters is kept.
    """
    if cell.folded:
        return cell
    f, g = len(cell.names), len(cell.keys)
    if not g:
        return replace(cell, own=np.zeros(0))
    prior = (_FOLDED_WIDENING * cell.spread) ** -2.0
    inverse = np.linalg.inv(cell.own + prior * np.eye(g))
    width = np.sqrt(np.maximum(np.diag(inverse), 1e-300))
    correlation = (inverse / np.outer(width, width)).astype(np.float32)
    largest = max(1.001 * float(np.linalg.eigvalsh(correlation)[-1]), 1.0)
    own = np.maximum(1.0 / (largest * width**2) - prior, 0.0)
    slope = -inverse @ cell.cross  # the shapes' factors as a function of the fixed parameters
    intercept = inverse @ (cell.moment[f:] + prior)
    fixed = cell.fixed + cell.cross.T @ slope
    moment = cell.moment[:f] - cell.cross.T @ intercept
    return cell.holding(
        fixed + (slope * own[:, None]).T @ slope,
        -own[:, None] * slope,
        own,
        np.append(moment - (own * intercept) @ slope, own * intercept),
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

    Of cells from before the machine changed, only the ids are kept.
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
    for cell in sorted(cells, key=lambda cell: (cell.when_s, int(cell.members[0]))):
        void = outdated(cell, since)
        if len(void):
            cell = without(cell, void)  # noqa: PLW2901
        aged = scaled(arrow(cell), 0.5 ** ((when_s - cell.when_s) / HALF_LIFE_S))
        name_columns = np.array([names.index(name) for name in aged.names], np.int64)
        key_rows = np.searchsorted(keys, aged.keys)
        fixed[np.ix_(name_columns, name_columns)] += aged.fixed
        cross[np.ix_(key_rows, name_columns)] += aged.cross
        own[key_rows] += aged.own
        moment[name_columns] += aged.moment[: len(name_columns)]
        moment[f + key_rows] += aged.moment[len(name_columns) :]
        diagonal = np.maximum(np.diag(aged.fixed), 1e-300)
        value[name_columns] += diagonal * aged.value
        weight[name_columns] += diagonal
        releases[key_rows] = aged.releases
        fresh[key_rows] |= aged.fresh
    merged = Cell(
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
    return merged.holding(fixed, cross, own, moment).stored()


def without(cell: Cell, keys: U64) -> Cell:
    """The cell with these shapes integrated out."""
    retained = ~np.isin(cell.keys, keys)
    fixed, moment_f, own, cross, moment_g = _without_shapes(cell, retained)
    reduced = replace(
        cell, keys=cell.keys[retained], releases=cell.releases[retained], fresh=cell.fresh[retained]
    )
    own = np.diag(own).copy() if cell.folded else own
    return reduced.holding(fixed, cross, own, np.append(moment_f, moment_g))


def changed_since(cells: Iterable[Cell]) -> dict[int, float]:
    """The time at which each changed shape changed last, in s since 1970."""
    since: dict[int, float] = {}
    for cell in cells:
        for key in cell.keys[cell.fresh].tolist():
            since[key] = max(since.get(key, cell.when_s), cell.when_s)
    return since


def since_anew(cells: Iterable[Cell]) -> list[Cell]:
    """The cells of one domain since its machine changed last.

    A single trace does not prove that power at rest changed, because its counter may have been
    wrong. Its change counts only if a later trace confirms it, or if no other trace came before.
    """
    remaining = list(cells)
    unconfirmed = [cell for cell in remaining if cell.anew and not _confirmed(cell, remaining)]
    if len(unconfirmed) < len(remaining):
        remaining = [cell for cell in remaining if not any(cell is other for other in unconfirmed)]
    begin_s = max((cell.when_s for cell in remaining if cell.anew), default=0.0)
    return [cell for cell in remaining if cell.when_s >= begin_s]


def _confirmed(cell: Cell, cells: Sequence[Cell]) -> bool:
    """Whether another trace confirms the change that a cell reports. A trace that only corrects its
    own earlier evidence needs no confirmation.
    """
    if not cell.domain.endswith(REST) or len(cell.members) > 1:
        return True
    if all(other.source == cell.source for other in cells if other.when_s <= cell.when_s):
        return True
    later = (
        other for other in cells if other.source != cell.source and other.when_s >= cell.when_s
    )
    return any(_agree(cell, other) for other in later)


def _agree(first: Cell, second: Cell) -> bool:
    """Whether two cells agree on the power at rest of the packages that both contain."""
    shared_names = [name for name in first.names if name in second.names]
    estimates = []
    for cell in (first, second):
        columns = [cell.names.index(name) for name in shared_names]
        precision = np.maximum(np.diag(cell.fixed)[columns], 1e-300)
        value = cell.moment[columns] / precision
        estimates.append((value, np.hypot(precision**-0.5, _DAY_TO_DAY * value)))
    (a, a_sigma), (b, b_sigma) = estimates
    return bool(shared_names) and bool((np.abs(a - b) <= 3.0 * np.hypot(a_sigma, b_sigma)).all())


def outdated(cell: Cell, since: dict[int, float]) -> U64:
    """The shapes of a cell that changed after it; `since`: see `changed_since`."""
    if not since:
        return np.zeros(0, np.uint64)
    changed = [key for key in cell.keys.tolist() if since.get(key, cell.when_s) > cell.when_s]
    return np.array(changed, np.uint64)
