# SPDX-License-Identifier: Apache-2.0
"""The power breakdown of the database server: sums and shares of its Table 1.

D. Tsirogiannis, S. Harizopoulos, M. A. Shah, Analyzing the energy efficiency of a database server,
SIGMOD 2010.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from published.tables import Misprint, number, table

STUDY = "operators-power"
_ROUNDING = 1.5  #: "60 %" stands for 58.9


def recomputed() -> pd.DataFrame:
    """The claims that Table 1 can confirm or refute.

    Returns:
        Columns `place`, `quantity`, `value`, `unit` as printed, and `here`.
    """
    parts = table(STUDY, "published_components.csv").set_index("component")
    rise = parts["peak_w"] - parts["idle_w"]
    idle, cpus, disks = parts["idle_w"].sum(), rise.iloc[0], rise.iloc[2:4].sum()
    here = {
        "idle power of the whole machine": idle,
        "CPU power between idle and full load": cpus,
        "share of the CPUs in the increase from idle to peak": 100 * cpus / rise.sum(),
        "share of the disks in the increase from idle to peak": 100 * disks / rise.sum(),
        "the same against the idle power of the machine": 100 * 92 / idle,
        "the same against the idle power of the CPUs": 100 * 92 / parts["idle_w"].iloc[0],
    }
    claims = table(STUDY, "published_claims.csv")
    decided = claims[claims["quantity"].isin(here)].copy()
    decided["here"] = decided["quantity"].map(here)
    return decided


def misprints() -> Iterator[Misprint]:
    """Claims that Table 1 contradicts by more than their rounding."""
    for _, claim in recomputed().iterrows():
        if abs(claim["value"] - claim["here"]) > _ROUNDING:
            yield Misprint(
                claim["place"], claim["quantity"], number(claim["value"]), number(claim["here"])
            )
