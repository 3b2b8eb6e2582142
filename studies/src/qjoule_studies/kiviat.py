# SPDX-License-Identifier: Apache-2.0
"""Kiviat (radar) diagrams: each row's figures as shares of the greatest that any row has.

As in figure 12 of Panda et al. (SBAC-PAD 2015), "normalized by their maximum observed values".
Pure functions on arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.api.model import F64

LEAST_AXES = 3
#: The axes of the paper's figure, in order.
PAPER_AXES = (
    "l1d_mpki",
    "l1i_mpki",
    "llc_mpki",
    "dtlb_mpki",
    "itlb_mpki",
    "kernel_instruction_share",
    "branch_miss_share",
    "stall_frontend_share",
)
#: Replacements for axes that were not recorded.
INSTEAD = {
    "kernel_instruction_share": ("kernel_cycle_share",),
    "branch_miss_share": ("branch_mpki",),
}
FURTHER_AXES = ("ipc", "frequency_ghz", "stall_backend_share", "l2_mpki", "memory_mb_s")


@dataclass(frozen=True)
class Kiviat:
    """`values` (rows, axes) from 0 to 1, NaN unknown; `greatest` (axes,) is what 1 stands for."""

    axes: tuple[str, ...]
    values: F64
    greatest: F64


def kiviat(table: F64, columns: Sequence[str]) -> Kiviat | None:
    """The diagram of a table (rows, columns) with NaN for unknown; None with less than three axes.

    An axis is a column with some value above 0. The paper's come first; others only where there
    would be less than three.
    """
    usable = [
        name for j, name in enumerate(columns) if (np.nan_to_num(table[:, j], nan=0.0) > 0).any()
    ]
    axes = []
    for name in PAPER_AXES:
        found = next((one for one in (name, *INSTEAD.get(name, ())) if one in usable), None)
        if found is not None:
            axes.append(found)
    for name in FURTHER_AXES:
        if len(axes) < LEAST_AXES and name in usable:
            axes.append(name)
    if len(axes) < LEAST_AXES:
        return None
    values = table[:, [list(columns).index(name) for name in axes]]
    greatest = np.nanmax(values, axis=0)
    return Kiviat(tuple(axes), np.asarray(values / greatest), np.asarray(greatest))
