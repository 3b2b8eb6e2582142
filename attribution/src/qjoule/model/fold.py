# SPDX-License-Identifier: Apache-2.0
"""Fewer rows: keeps the first and joins the others into one, so that the sum is unchanged."""

from __future__ import annotations

from dataclasses import replace

from qjoule.model.result import Attribution, Row
from qjoule.model.row_sums import added, in_order, merged

#: The name for a tag's values beyond the bound.
OTHER_VALUES = "other"


def fold_rows(attribution: Attribution, top: int) -> Attribution:
    """Keeps the first `top` rows of queries and joins all others into one.

    Latency quantiles of the joined row are unknown. Its interval adds up the ends of its rows'
    intervals, since their errors are common.
    """
    rest = attribution.rows[top:]
    if len(rest) < 2:
        return attribution
    name = f"({len(rest)} others)"
    folded = added(rest, dict.fromkeys(rest[0].keys, name), apart=False)
    folded = replace(folded, shape=name, flags=())
    return replace(attribution, rows=(*attribution.rows[:top], folded))


def bound_tags(
    attribution: Attribution, most: int, named_by: Attribution | None = None
) -> Attribution:
    """At most `most` values of each tag that rows are grouped by; the others are `OTHER_VALUES`.

    Those with the most energy keep their names. The bound is needed because applications choose the
    values: tagging every request would make a row for each. A note gives the number of values that
    are not named.

    `named_by`: the attribution whose energies decide, if it is another one, such as that of all
    intervals.
    """
    tags = [key for key in attribution.policy["by"].split(",") if key.startswith("tag:")]
    named = {key: _first_values(named_by or attribution, key, most) for key in tags}
    left_out = {key: values[1] for key, values in named.items() if values[1]}
    if not left_out:
        return attribution
    notes = (
        f"{count} more values of {key} are '{OTHER_VALUES}': see --max-values"
        for key, count in left_out.items()
    )
    model = replace(attribution.model, notes=(*attribution.model.notes, *notes))
    kept = {key: values[0] for key, values in named.items()}
    parts = tuple(
        replace(part, attribution=_renamed(part.attribution, kept)) for part in attribution.parts
    )
    return replace(_renamed(attribution, kept), model=model, parts=parts)


def _renamed(attribution: Attribution, kept: dict[str, frozenset[str]]) -> Attribution:
    """Values of tags that are not kept get the common name; rows that are then equal are joined."""
    rows = merged(replace(row, keys=_keys(row, kept)) for row in attribution.rows)
    return replace(attribution, rows=in_order(rows)[0])


def _keys(row: Row, kept: dict[str, frozenset[str]]) -> dict[str, str]:
    return {
        name: value if row.not_selected or name not in kept or value in kept[name] else OTHER_VALUES
        for name, value in row.keys.items()
    }


def _first_values(attribution: Attribution, key: str, most: int) -> tuple[frozenset[str], int]:
    """The values with the most energy (then most CPU time), and the number of other values."""
    sums: dict[str, tuple[int, int]] = {}
    for row in attribution.rows:
        if not row.not_selected:
            energy_nj, cpu_ns = sums.get(row.keys[key], (0, 0))
            sums[row.keys[key]] = (energy_nj + row.energy_nj, cpu_ns + row.cpu_ns)
    order = sorted(sums, key=lambda value: (*(-one for one in sums[value]), value))
    return frozenset(order[:most]), max(len(order) - most, 0)
