# SPDX-License-Identifier: Apache-2.0
"""Groups that are expected to draw alike form a class. The fit gives each class a power factor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qjoule.model.energy import I64
from qjoule.model.fit.rows import ClassOf
from qjoule.model.labels import GroupLabel


def classes(labels: Sequence[GroupLabel]) -> ClassOf:
    """Groups that run one statement form a class: a single query is too short to learn from.

    Every other group, including those beyond `labels`, is a class of its own.
    """
    first: dict[tuple[str, ...], int] = {}
    table = np.arange(len(labels), dtype=np.int64)
    for number, label in enumerate(labels):
        statement = dict(label.keys).get("fingerprint") or label.shape
        if label.kind == "queries" and statement:
            table[number] = first.setdefault((statement, label.server), number)

    def class_of(groups: I64) -> I64:
        if not len(table):
            return groups
        known = groups < len(table)
        return np.where(known, table[np.minimum(groups, len(table) - 1)], groups)

    return class_of
