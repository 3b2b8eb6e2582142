# SPDX-License-Identifier: Apache-2.0
"""Fewer rows: the first stay, the others become one that still adds up."""

from __future__ import annotations

from dataclasses import replace

from qjoule.model.result import Attribution, Row
from qjoule.model.row_sums import added, in_order, merged

#: What a tag's values beyond the bound are called.
OTHER_VALUES = "other"


def fold_rows(attribution: Attribution, top: int) -> Attribution:
    """The first `top` rows of queries and one for all others.

    Latency quantiles of the folded row are unknown; its interval adds up its rows' ends, since
    their errors are common.
    """
    rest = attribution.rows[top:]
    if len(rest) < 2:
        return attribution
    name = f"({len(rest)} others)"
    folded = added(rest, dict.fromkeys(rest[0].keys, name), apart=False)
    folded = replace(folded, shape=name, flags=(), shared_nj=None)
    return replace(attribution, rows=(*attribution.rows[:top], folded))


def bound_tags(
    attribution: Attribution, most: int, named_by: Attribution | None = None
) -> Attribution:
    """At most `most` values of each tag that rows are grouped by; the others are `OTHER_VALUES`.

    Those with the most energy keep their names. Applications choose the values, and one that tags
    every request would have a row for each. A note says how many are not named.

    `named_by`: whose energy decides, where it is another's, such as of all intervals.
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
    """Values of tags that are not kept get their common name, and rows that then agree are one."""
    rows = merged(replace(row, keys=_keys(row, kept)) for row in attribution.rows)
    return replace(attribution, rows=in_order(rows)[0])


def _keys(row: Row, kept: dict[str, frozenset[str]]) -> dict[str, str]:
    return {
        name: value if row.not_selected or name not in kept or value in kept[name] else OTHER_VALUES
        for name, value in row.keys.items()
    }


def _first_values(attribution: Attribution, key: str, most: int) -> tuple[frozenset[str], int]:
    """The values of most energy (of equals, most CPU time), and how many there are beyond."""
    sums: dict[str, tuple[int, int]] = {}
    for row in attribution.rows:
        if not row.not_selected:
            energy_nj, cpu_ns = sums.get(row.keys[key], (0, 0))
            sums[row.keys[key]] = (energy_nj + row.energy_nj, cpu_ns + row.cpu_ns)
    order = sorted(sums, key=lambda value: (*(-one for one in sums[value]), value))
    return frozenset(order[:most]), max(len(order) - most, 0)
