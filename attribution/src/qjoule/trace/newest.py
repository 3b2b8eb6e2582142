# SPDX-License-Identifier: Apache-2.0
"""The `owners` table of a trace, one row for each owner."""

from __future__ import annotations

import numpy as np

from qjoule.lazy_import import pa
from qjoule.trace.columns import plain


def newest_owners(owners: pa.Table) -> pa.Table:
    """The last row of each owner, by owner: a recorder repeats an owner when it learns more."""
    ids = plain(owners.column("owner").combine_chunks(), np.uint32)
    _, from_end = np.unique(ids[::-1], return_index=True)
    if from_end.size == ids.size and bool(np.all(ids[1:] > ids[:-1])):
        return owners
    return owners.take(pa.array(ids.size - 1 - from_end)).combine_chunks()
