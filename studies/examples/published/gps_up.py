# SPDX-License-Identifier: Apache-2.0
"""Speedup, greenup and powerup of the thesis's tables, computed from their watts and seconds.

D. Mahajan, MSc thesis, Texas State University, 2016. The form that saves is compared with the other
form of its pair. Between servers, each is compared with the server that has no printed ratios.
Chapter 8 prints 1 / powerup as powerup; Table 8-6 prints that as speedup, and the speedup as
powerup.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from published import Misprint, differs, number, table
from qjoule.model.gpsup import category

STUDY = "gps-up-twitter"
#: Watts, seconds and joules are means of several runs, so their product need not be exact.
_ENERGY_TOLERANCE, _RATIO_TOLERANCE = 0.005, 0.001
RATIOS = ("speedup", "powerup", "greenup")
#: Statements in the thesis's text that its own table contradicts.
_SENTENCES = (
    Misprint("text of 6-1", "greenup", "nearly 478", "498"),
    Misprint("text of 6-2", "greenup", "44", "474"),
    Misprint("text of 6-6", "time after sharding", "almost half", "a third"),
    Misprint(
        "Table 8-1",
        "unit of the column Power",
        "W",
        "J: divided by the seconds it is 85.6 to 95.9 W, and idle is 89.69 W",
    ),
    Misprint(
        "text of 8-1",
        "what MongoDB saves",
        "85 % of Cassandra's, 92 % of MySQL's power",
        "61 % and 70 % of their energy",
    ),
    Misprint(
        "Table 4-1",
        "idle power",
        "89.69 W",
        "at most 48.3 W: the query of Table 5-5 draws no more",
    ),
)


def recomputed() -> pd.DataFrame:
    """Each form against its base.

    Returns:
        Columns `table`, `server`, `work`, `change`, `form`, then for each ratio its printed and its
        recomputed value (`speedup`, `speedup_here`, ...), `energy_j`, `energy_here_j` and the
        GPS-UP `category` of the recomputed ratios.
    """
    rows = []
    for _, forms in table(STUDY, "published.csv").groupby("table", sort=False):
        # Pairs print their ratios on the first line, which is the base of both.
        is_pair = len(forms) == 2
        base = forms.iloc[0] if is_pair else forms[forms["speedup"].isna()].iloc[0]
        for at, form in forms.iterrows():
            ratios = base if is_pair else form
            speedup = base["time_s"] / form["time_s"]
            greenup = base["power_w"] * base["time_s"] / (form["power_w"] * form["time_s"])
            row = form[["table", "server", "work", "change", "form", "energy_j"]].to_dict()
            row["energy_here_j"] = form["power_w"] * form["time_s"]
            if at != base.name:
                here = dict(zip(RATIOS, (speedup, speedup / greenup, greenup), strict=True))
                row |= {name: ratios[name] for name in RATIOS}
                row |= {f"{name}_here": value for name, value in here.items()}
                row["category"] = category(speedup, greenup)
            rows.append(row)
    return pd.DataFrame(rows)


def misprints() -> Iterator[Misprint]:
    """Cells that do not follow from the watts and seconds beside them, and sentences."""
    for _, row in recomputed().iterrows():
        place = f"Table {row['table']}, {row['form']}"
        if differs(row["energy_j"], row["energy_here_j"], _ENERGY_TOLERANCE):
            yield Misprint(place, "energy_j", number(row["energy_j"]), number(row["energy_here_j"]))
        for name in RATIOS:
            here = row[f"{name}_here"]
            if pd.notna(here) and differs(row[name], here, _RATIO_TOLERANCE):
                yield Misprint(place, name, number(row[name]), number(here))
    yield from _SENTENCES
