# SPDX-License-Identifier: Apache-2.0
"""Shares of the energy of all owners, with 95 % intervals: of one trace, and of several.

A share ranks rows. Most of what is unknown of a row's joules (power at rest, power that a package
draws once, the total) moves all rows alike, so a share is better known than the joules are.
`group_errors` has the sums that this is made from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import I64
from qjoule.model.interval import EnergyErrors, RowErrors, of_recordings
from qjoule.model.result import OWNERS, Domain, Row

Shares = tuple[list[float], list[float], list[float]]  #: n values, lower ends, upper ends


def shares_of(
    energy_nj: I64, errors: EnergyErrors[F64], joules: tuple[F64, F64], *, absolute: bool = False
) -> Shares | None:
    """Shares of n owners, and the ends of their intervals; None if there is no energy.

    `errors`: as `GroupErrors.of_shares`. `joules`: ends of the energies, in nJ. A share is never
    less certain than these: at least its own lower end over that and everybody else's upper ends.
    """
    energy = energy_nj.astype(np.float64)
    total_nj = float(energy_nj.sum())
    if total_nj <= 0:
        return None
    low, high = joules
    # Exact sums: the result does not depend on the order of owners.
    others_low, others_high = math.fsum(low) - low, math.fsum(high) - high
    # If nobody else may have drawn anything, the share is 1.
    at_least = np.divide(low, low + others_high, out=np.ones_like(low), where=others_high > 0)
    at_most = high / np.where(high > 0, high + np.maximum(others_low, 0.0), 1.0)
    own_low, own_high = errors.ends(energy, absolute=absolute)
    share = energy / total_nj
    lower = np.clip(np.maximum(own_low / total_nj, at_least), 0.0, share)
    upper = np.clip(np.minimum(own_high / total_nj, at_most), share, 1.0)
    return share.tolist(), lower.tolist(), upper.tolist()


def sum_of_shares(
    rows: Sequence[Row], sum_of: Callable[[Sequence[RowErrors]], RowErrors]
) -> tuple[float | None, tuple[float, float] | None, RowErrors | None]:
    """Share, interval and errors of several rows of one result: the ends add up."""
    if any(row.share is None for row in rows):
        return None, None, None
    share = min(sum(row.share or 0.0 for row in rows), 1.0)
    ends = [row.share_ci95 for row in rows if row.share_ci95]
    errors = [row.share_error for row in rows if row.share_error]
    all_known = len(ends) == len(rows)
    low, high = sum(end[0] for end in ends), sum(end[1] for end in ends)
    return (
        share,
        (min(low, share), max(min(high, 1.0), share)) if all_known else None,
        sum_of(errors) if len(errors) == len(rows) else None,
    )


def of_several_traces(
    rows: Sequence[Row],
    of_traces: Sequence[Sequence[Sequence[Row]]],
    domains: Sequence[Domain],
    *,
    one_total: bool,
) -> list[Row]:
    """The rows of several traces' sum, with their shares of the energy of all traces' owners.

    `of_traces`: of each row, those of each trace. `domains`: what each trace has of the rows'
    domain. `one_total`: an error of the total is the same factor in all of them. In a trace in
    which the row's share is another than in all, an error of its owners' total moves that share. It
    may be the same in all traces or not, so all of them add up.
    """
    updated = [replace(row, share=None, share_ci95=None, share_error=None) for row in rows]
    owner_rows = [i for i, row in enumerate(rows) if row.kind in OWNERS]
    total_nj = sum(rows[i].energy_nj for i in owner_rows)
    if total_nj <= 0:
        return updated
    shares = [rows[i].energy_nj / total_nj for i in owner_rows]
    errors = [
        _error_of_sum(s, of_traces[i], domains) for s, i in zip(shares, owner_rows, strict=True)
    ]
    known_errors = [error for error in errors if error is not None]
    if len(known_errors) < len(owner_rows):
        for share, i in zip(shares, owner_rows, strict=True):
            updated[i] = replace(updated[i], share=share)
        return updated
    energy_nj = np.array([rows[i].energy_nj for i in owner_rows], np.int64)
    low, high = np.array([rows[i].energy_nj_ci95 for i in owner_rows]).T
    parts = EnergyErrors(*np.array([astuple(error) for error in known_errors]).T)
    shares_and_ends = shares_of(energy_nj, parts, (low, high), absolute=not one_total)
    for error, i, *share_and_ends in zip(
        known_errors, owner_rows, *(shares_and_ends or ()), strict=True
    ):
        updated[i] = replace(
            updated[i],
            share=share_and_ends[0],
            share_ci95=(share_and_ends[1], share_and_ends[2]),
            share_error=error,
        )
    return updated


def _error_of_sum(
    share: float, of_traces: Sequence[Sequence[Row]], domains: Sequence[Domain]
) -> RowErrors | None:
    """The errors of E - s T over all traces; None if those of a trace are not known."""
    errors = []
    for rows, domain in zip(of_traces, domains, strict=True):
        if domain.owned_error is None or any(r.energy_nj and r.share_error is None for r in rows):
            return None
        errors += [row.share_error for row in rows if row.share_error is not None]
        difference = sum(row.share or 0.0 for row in rows) - share
        errors.append(_by_total(domain.owned_error, difference))
    return of_recordings(errors)


def _by_total(total: RowErrors, difference: float) -> RowErrors:
    """What the errors of the owners' total are in a share that is `difference` from that of all."""
    factor, sides = abs(difference), (total.down_nj, total.up_nj)
    down_nj, up_nj = sides if difference > 0 else sides[::-1]
    return EnergyErrors(
        factor**2 * total.random_nj2,
        factor * total.model_nj,
        factor * total.scaled_nj,
        factor * total.total_nj,
        0.0,
        factor * (total.unnamed_nj + 2.0 * total.loss_nj),
        factor * down_nj,
        factor * up_nj,
    )
