# SPDX-License-Identifier: Apache-2.0
"""The efficiency at partial load that WattDB starts from, as power.

T. Härder, WattDB (slides, 2014). Efficiency is relative load over relative energy consumption, so
relative power at a load is that load over its efficiency.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from published.tables import Misprint, number, table

STUDY = "energy-proportionality"


def recomputed() -> pd.DataFrame:
    """Relative power at each load.

    Returns:
        Columns `load_percent`, `efficiency_percent` and `power_percent` (of that at full load).
    """
    found = table(STUDY, "published.csv")
    found["power_percent"] = 100 * found["load_percent"] / found["efficiency_percent"]
    return found


def idle_percent() -> float:
    """Power at no load, relative to full load: a line through the values printed below 90 %.

    At 90 % the printed efficiency implies full power, which does not fit a line through the others.
    """
    found = recomputed()
    below = found[found["load_percent"] < 90]
    return float(np.polyfit(below["load_percent"], below["power_percent"], 1)[1])


def misprints() -> Iterator[Misprint]:
    """Efficiencies that imply as much power at partial load as at full load."""
    for _, row in recomputed().iterrows():
        if row["power_percent"] >= 100:
            place = f"load {row['load_percent']} %"
            yield Misprint(
                place, "power, of that at full load", "less", number(row["power_percent"])
            )
