# SPDX-License-Identifier: Apache-2.0
"""Adds the error of the total, which all rows share, to their intervals, or leaves it out.

If the total is wrong by a factor, all rows' joules are wrong by that factor, but their ratios are
not. So rows' intervals leave the error of the total out, and it is reported once. Joules that are
compared with those of another total need both.
"""

from __future__ import annotations

from dataclasses import replace

from qjoule.model.gpsup import Form, Interval
from qjoule.model.interval import RowErrors
from qjoule.model.result import Attribution, Row

#: Note on a sum of several totals; its argument is the grade.
NOT_EQUALLY = "{}: the totals are not equally certain, so rows' intervals contain their error"


def with_total_error(attribution: Attribution) -> Attribution:
    """The attribution with the error of the total in each row's interval, also in its parts."""
    source = attribution.energy_source
    parts = tuple(
        replace(part, attribution=with_total_error(part.attribution)) for part in attribution.parts
    )
    if source.error_in_rows or not (source.total_error or source.other_errors):
        return replace(attribution, parts=parts)
    errors = {**source.other_errors, source.main_domain: source.total_error}
    return replace(
        attribution,
        energy_source=replace(source, error_in_rows=True),
        rows=tuple(_absolute(row, source.main_domain, errors) for row in attribution.rows),
        fixed=tuple(_absolute(row, source.main_domain, errors) for row in attribution.fixed),
        parts=parts,
    )


def _absolute(row: Row, main: str, errors: dict[str, float]) -> Row:
    return replace(
        row,
        energy_nj_ci95=_ends(row.energy_nj, row.energy_nj_ci95, row.error, errors[main]),
        energy_by_domain_ci95={
            name: _ends(
                row.energy_by_domain_nj[name],
                ends,
                row.error_by_domain.get(name),
                errors.get(name, 0.0),
            )
            for name, ends in row.energy_by_domain_ci95.items()
        },
    )


def _ends(energy_nj: int, ends: Interval, error: RowErrors | None, total_error: float) -> Interval:
    """Of a row that was joined from others, the parts of the error are not known: the ends move by
    the whole error of the total, so they are too wide, never too narrow."""
    if error is None:
        total_nj = total_error * energy_nj
        return max(ends[0] - total_nj, 0.0), ends[1] + total_nj
    low, high = error.ends(float(energy_nj), absolute=True)
    return float(low), float(high)


def without_total_error(form: Form) -> Form:
    """`form` with its interval without the error of the total, if it knows that one."""
    same_total = form.same_total_ci95
    return form if same_total is None else replace(form, j_per_call_ci95=same_total)
