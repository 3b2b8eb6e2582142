# SPDX-License-Identifier: Apache-2.0
"""Bounds the number of values of a tag that a result names one by one."""

from __future__ import annotations

from dataclasses import replace

from qjoule.model.result import Attribution, Row
from qjoule.model.row_sums import in_order, merged

#: The name for a tag's values beyond the bound.
OTHER_VALUES = "other"


def bound_tags(
    attribution: Attribution, max_values: int, named_by: Attribution | None = None
) -> Attribution:
    """At most `max_values` values of each tag that rows are grouped by; others become
    `OTHER_VALUES`.

    Those with the most energy keep their names. The bound is needed because applications choose the
    values: tagging every request would make a row for each. A note gives the number of values that
    are not named.

    `named_by`: the attribution whose energies decide, if it is another one, such as that of all
    intervals.
    """
    tags = [key for key in attribution.policy["by"].split(",") if key.startswith("tag:")]
    first_values = {key: _first_values(named_by or attribution, key, max_values) for key in tags}
    left_out = {key: values[1] for key, values in first_values.items() if values[1]}
    if not left_out:
        return attribution
    notes = (
        f"{count} more values of {key} are '{OTHER_VALUES}': see --max-values"
        for key, count in left_out.items()
    )
    model = replace(attribution.model, notes=(*attribution.model.notes, *notes))
    kept_values = {key: values[0] for key, values in first_values.items()}
    parts = tuple(
        replace(part, attribution=_renamed(part.attribution, kept_values))
        for part in attribution.parts
    )
    return replace(_renamed(attribution, kept_values), model=model, parts=parts)


def _renamed(attribution: Attribution, kept_values: dict[str, frozenset[str]]) -> Attribution:
    """Values of tags that are not kept get the common name; rows that are then equal are joined."""
    rows = merged(replace(row, keys=_keys(row, kept_values)) for row in attribution.rows)
    return replace(attribution, rows=in_order(rows)[0])


def _keys(row: Row, kept_values: dict[str, frozenset[str]]) -> dict[str, str]:
    return {
        name: value
        if row.not_selected or name not in kept_values or value in kept_values[name]
        else OTHER_VALUES
        for name, value in row.keys.items()
    }


def _first_values(
    attribution: Attribution, key: str, max_values: int
) -> tuple[frozenset[str], int]:
    """The values with the most energy (then most CPU time), and the number of other values."""
    sums: dict[str, tuple[int, int]] = {}
    for row in attribution.rows:
        if not row.not_selected:
            energy_nj, cpu_ns = sums.get(row.keys[key], (0, 0))
            sums[row.keys[key]] = (energy_nj + row.energy_nj, cpu_ns + row.cpu_ns)
    order = sorted(sums, key=lambda value: (*(-amount for amount in sums[value]), value))
    return frozenset(order[:max_values]), max(len(order) - max_values, 0)
