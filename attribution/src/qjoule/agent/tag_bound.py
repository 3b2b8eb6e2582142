# SPDX-License-Identifier: Apache-2.0
"""Limits the rows of an hour by tag, because applications choose the values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from qjoule.agent.hour_sums import of_hour
from qjoule.agent.rollup_schema import KEYS
from qjoule.lazy_import import pc

#: Stands for the values, and for the statements, beyond the bound.
OTHER = "other"
#: Rows of an hour.
MAX_ROWS = 10_000


def bounded(rows: pa.Table, hour_s: int, most: int, most_rows: int = MAX_ROWS) -> pa.Table:
    """An hour's rows by tag, of which only the `most` values of each tag with most energy are
    named, and only `most_rows` rows have their own value and statement. Sums stay the same.
    """
    by_value = rows.group_by(["tag", "value"]).aggregate([("energy_nj", "sum")])
    by_value = by_value.sort_by([("energy_nj_sum", "descending"), ("value", "ascending")])
    named: dict[str, set[str]] = {}
    for one in by_value.to_pylist():
        values = named.setdefault(one["tag"], set())
        if len(values) < most and one["value"] != OTHER:
            values.add(one["value"])
    pairs = zip(rows["tag"].to_pylist(), rows["value"].to_pylist(), strict=True)
    folds = np.array([value != OTHER and value not in named[tag] for tag, value in pairs], np.bool_)
    energy_nj = pc.fill_null(rows["energy_nj"], 0).to_numpy()
    beyond = np.zeros(len(rows), np.bool_)
    beyond[np.argsort(-energy_nj, kind="stable")[most_rows:]] = True
    if not (folds | beyond).any():
        return rows
    rows = _with(rows, "value", pa.array(folds | beyond))
    rows = _with(rows, "fingerprint", pa.array(beyond))
    return of_hour(rows, hour_s, (*KEYS, "tag", "value"))


def _with(rows: pa.Table, name: str, goes: pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), pc.if_else(goes, OTHER, rows[name]))
