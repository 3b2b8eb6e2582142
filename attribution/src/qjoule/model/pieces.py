"""Sums by index."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import F64
from qjoule.model.counters import I64


def real_sums(index: I64, values: npt.NDArray[np.generic], size: int) -> F64:
    """Sums of `values` (n,) by `index` (n,), as an array of length `size`."""
    return np.bincount(index, values, minlength=size).astype(np.float64, copy=False)
