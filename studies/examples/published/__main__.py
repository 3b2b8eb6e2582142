# SPDX-License-Identifier: Apache-2.0
"""Recomputes each source's results from its own numbers, and prints where the two differ.

PYTHONPATH=studies/examples .venv/bin/python -m published [gps-up-twitter|factorial-nosql|...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pandas as pd

from published import Misprint, gps_up, number, table

# ---- factorial -----------------------------------------------------------------------------------
#
# The ANOVA tables of the factorial study: what their shares of variance and F values imply.
#
# C. Gomes, E. Tavares, M. Nogueira de O. Junior, Energy consumption evaluation of NoSQL DBMSs. Of
# an effect with k degrees of freedom, F = (share / k) / (error's share / error's degrees of
# freedom). Three servers by three commands with r replications leave 9 (r - 1) degrees of freedom
# to the error.

FACTORIAL = "factorial-nosql"
FACTORIAL_REPLICATIONS = 75  #: as section 4 of the study states
_FACTORIAL_DEGREES = {"DBMS": 2, "Comm": 2, "DBMS*Comm": 4}


def factorial_recomputed() -> pd.DataFrame:
    """For each ANOVA: the sum of its shares, and the replications that its F values imply.

    Returns:
        Columns `response`, `operations`, `share_percent` (their sum), `error_degrees` (the median
        of what the three F values imply) and `replications`.
    """
    rows = []
    printed = table(FACTORIAL, "published_anova.csv")
    for (response, operations), effects in printed.groupby(["response", "operations"], sort=False):
        shares = effects.set_index("source")["share_percent"]
        f_values = effects.set_index("source")["f"]
        implied = pd.Series(
            {
                effect: f_values[effect] * degrees * shares["Error"] / shares[effect]
                for effect, degrees in _FACTORIAL_DEGREES.items()
            }
        )
        degrees = implied.median()
        rows.append(
            {
                "response": response,
                "operations": operations,
                "share_percent": shares.sum(),
                "error_degrees": degrees,
                "replications": degrees / 9 + 1,
            }
        )
    return pd.DataFrame(rows)


def factorial_misprints() -> Iterator[Misprint]:
    """Tables whose F values imply another number of replications than the text states."""
    for _, row in factorial_recomputed().iterrows():
        place = f"{row['response']}, {row['operations']} operations"
        if abs(row["share_percent"] - 100) > 0.02:
            yield Misprint(place, "sum of shares", "100", number(row["share_percent"]))
        if round(row["replications"]) != FACTORIAL_REPLICATIONS:
            yield Misprint(
                place,
                "replications that F implies",
                str(FACTORIAL_REPLICATIONS),
                number(row["replications"]),
            )


# ---- operators -----------------------------------------------------------------------------------
#
# The power breakdown of the database server: sums and shares of its Table 1.
#
# D. Tsirogiannis, S. Harizopoulos, M. A. Shah, Analyzing the energy efficiency of a database
# server, SIGMOD 2010.

OPERATORS = "operators-power"
_CLAIMS_ROUNDING = 1.5  #: "60 %" stands for 58.9


def operators_recomputed() -> pd.DataFrame:
    """The claims that Table 1 can confirm or refute.

    Returns:
        Columns `place`, `quantity`, `value`, `unit` as printed, and `here`.
    """
    parts = table(OPERATORS, "published_components.csv").set_index("component")
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
    claims = table(OPERATORS, "published_claims.csv")
    decided = claims[claims["quantity"].isin(here)].copy()
    decided["here"] = decided["quantity"].map(here)
    return decided


def operators_misprints() -> Iterator[Misprint]:
    """Claims that Table 1 contradicts by more than their rounding."""
    for _, claim in operators_recomputed().iterrows():
        if abs(claim["value"] - claim["here"]) > _CLAIMS_ROUNDING:
            yield Misprint(
                claim["place"], claim["quantity"], number(claim["value"]), number(claim["here"])
            )


# ---- proportionality -----------------------------------------------------------------------------
#
# The efficiency at partial load that WattDB starts from, as power.
#
# T. Härder, WattDB (slides, 2014). Efficiency is relative load over relative energy consumption, so
# relative power at a load is that load over its efficiency.

PROPORTIONALITY = "energy-proportionality"


def proportionality_recomputed() -> pd.DataFrame:
    """Relative power at each load.

    Returns:
        Columns `load_percent`, `efficiency_percent` and `power_percent` (of that at full load).
    """
    loads = table(PROPORTIONALITY, "published.csv")
    loads["power_percent"] = 100 * loads["load_percent"] / loads["efficiency_percent"]
    return loads


def proportionality_misprints() -> Iterator[Misprint]:
    """Efficiencies that imply as much power at partial load as at full load."""
    for _, row in proportionality_recomputed().iterrows():
        if row["power_percent"] >= 100:
            place = f"load {row['load_percent']} %"
            yield Misprint(
                place, "power, of that at full load", "less", number(row["power_percent"])
            )


# ---- counters ------------------------------------------------------------------------------------
#
# Checks the numbers in the counter study's text against each other.
#
# R. Panda et al., Performance characterization of modern databases on out-of-order CPUs, 2015.
# Cycles per instruction add up by the shares of instructions in user mode and in the kernel.

COUNTERS = "counters-pca"


def kernel_share_percent() -> float:
    """The share of the kernel's instructions that the three printed IPC values imply."""
    printed = table(COUNTERS, "published.csv")
    ipc = printed[printed["quantity"].str.startswith("instructions per cycle")]["least"].to_numpy()
    overall, user, kernel = 1 / ipc
    return float(100 * (overall - user) / (kernel - user))


def counters_misprints() -> Iterator[Misprint]:
    """Numbers in the text that contradict each other."""
    yield Misprint(
        "section IV.A",
        "share of the kernel's instructions",
        "15 to 30 %",
        f"{number(kernel_share_percent())} % by the three IPC values",
    )
    yield Misprint(
        "section IV.C",
        "branch mispredictions",
        "over 6 % (all), most MongoDB's with over 5.5 %",
        "an average above the greatest",
    )
    yield Misprint(
        "section III",
        "L1 caches of the Xeon E5405",
        "64 KB for instructions and 64 KB for data",
        "32 KB each (Intel's specification)",
    )


# ---- all studies ---------------------------------------------------------------------------------

#: By study: its recomputed table, if it has one, and what its own numbers contradict.
STUDIES: dict[str, tuple[Callable[[], pd.DataFrame] | None, Callable[[], Iterator[Misprint]]]] = {
    gps_up.STUDY: (gps_up.recomputed, gps_up.misprints),
    FACTORIAL: (factorial_recomputed, factorial_misprints),
    OPERATORS: (operators_recomputed, operators_misprints),
    PROPORTIONALITY: (proportionality_recomputed, proportionality_misprints),
    COUNTERS: (None, counters_misprints),
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in STUDIES]
    if unknown:
        print(f"no study '{unknown[0]}': use {', '.join(STUDIES)}", file=sys.stderr)
        return 2
    for name in names or STUDIES:
        recomputed, misprints = STUDIES[name]
        print(f"{name}\n")
        if recomputed is not None:
            print(recomputed().to_string(index=False, na_rep="", float_format="%.5g"), "\n")
        for error in misprints():
            print(f"{error.place}: {error.what}: printed {error.printed}, is {error.recomputed}")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
