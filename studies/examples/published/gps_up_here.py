# SPDX-License-Identifier: Apache-2.0
"""Speedup, greenup and powerup of a study of the workload `twitter`, beside the thesis's.

    PYTHONPATH=studies/examples .venv/bin/python -m published.gps_up_here STUDY

Seconds are a call's latency as its client saw it. Joules are what qjoule attributes to the server
for the call, whereas the thesis has those of the whole machine: idle power is in neither form here,
but in both there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from published import gps_up
from qjoule.errors import QjouleError
from qjoule.model.gpsup import category
from qjoule.model.run_ratios import LogRatios, log_ratios
from qjoule.report.study_runs import FACTOR, read_runs

_MYSQL = {"count": "1", "delete": "2", "most_tweeted": "3", "select_star": "4", "in_exists": "5"}
#: Tables of the thesis, by server and pair.
TABLES = {
    "mysql": {pair: f"5-{number}" for pair, number in _MYSQL.items()},
    "mariadb": {pair: f"5-{number}" for pair, number in _MYSQL.items()},
    "mongodb": {
        "covered": "6-1",
        "delete": "6-2",
        "insert": "6-3",
        "bulk": "6-4",
        "most_tweeted": "6-5",
    },
    "cassandra": {"update": "7-1", "search": "7-2", "insert": "7-3", "most_tweeted": "7-4"},
}


def ratios(runs: pd.DataFrame) -> pd.DataFrame:
    """Each pair's ratios with 95 % intervals over runs.

    Args:
        runs: of `read_runs`, with the factors `server`, `pair` and `form`.

    Returns:
        Columns `server`, `pair`, `table` (of the thesis, or empty), `runs` (of the side with
        fewer), `speedup`, `greenup`, each with `_low` and `_high`; `powerup`; `category`, which
        says so where an interval holds 1; the thesis's `speedup_there` and `greenup_there`.
    """
    done = runs[runs["status"] == "done"]
    thesis = gps_up.recomputed().dropna(subset=["speedup_here"]).set_index("table")
    rows = []
    for (server, pair), forms in done.groupby([FACTOR + "server", FACTOR + "pair"], sort=False):
        sides = [forms[forms[FACTOR + "form"] == form] for form in ("better", "worse")]
        if any(side.empty for side in sides):
            continue
        faster, greener = (_over(sides, of) for of in ("latency_ns_mean", "j_per_operation"))
        speedup, greenup = (float(np.exp(over.estimate[0])) for over in (faster, greener))
        ends = {name: over.interval() for name, over in (("speedup", faster), ("greenup", greener))}
        table = TABLES.get(str(server), {}).get(str(pair), "")
        row = {
            "server": server,
            "pair": pair,
            "table": table,
            "runs": min(len(side) for side in sides),
            "speedup": speedup,
            "greenup": greenup,
            "powerup": speedup / greenup,
            "category": category(
                speedup, greenup, (float(ends["greenup"][0][0]), float(ends["greenup"][1][0]))
            ),
        }
        for name, (low, high) in ends.items():
            row |= {f"{name}_low": float(low[0]), f"{name}_high": float(high[0])}
        for name in ("speedup", "greenup"):
            row[f"{name}_there"] = thesis[f"{name}_here"].get(table, np.nan)
        rows.append(row)
    return pd.DataFrame(rows)


def _over(sides: list[pd.DataFrame], column: str) -> LogRatios:
    """Worse over better: above 1 the better form saves."""
    better, worse = (side[column].to_numpy(np.float64)[None, :] for side in sides)
    return log_ratios(better, worse)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m published.gps_up_here STUDY", file=sys.stderr)
        return 2
    try:
        runs = read_runs(Path(arguments[0]))
        pairs = ratios(runs)
    except (QjouleError, KeyError) as error:
        print(f"{arguments[0]} is no study of pairs: {error}", file=sys.stderr)
        return 1
    print(f"joules: {runs['grade'].iloc[0]}; idle policy: {runs['idle_policy'].iloc[0]}")
    for _, row in pairs.iterrows():
        beside = f" (thesis, Table {row['table']}: " if row["table"] else ""
        print(f"{row['server']} {row['pair']}: {row['category']}; runs: {row['runs']}")
        for name in ("speedup", "greenup"):
            text = (
                f"  {name} {row[name]:.3g} ({row[name + '_low']:.3g} to {row[name + '_high']:.3g})"
            )
            print(text + (f"{beside}{row[name + '_there']:.3g})" if beside else ""))
        print(f"  powerup {row['powerup']:.3g}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
