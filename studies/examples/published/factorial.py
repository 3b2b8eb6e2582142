# SPDX-License-Identifier: Apache-2.0
"""The ANOVA tables of the factorial study: what their shares of variance and F values imply.

C. Gomes, E. Tavares, M. Nogueira de O. Junior, Energy consumption evaluation of NoSQL DBMSs. Of an
effect with k degrees of freedom, F = (share / k) / (error's share / error's degrees of freedom).
Three servers by three commands with r replications leave 9 (r - 1) degrees of freedom to the error.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from published.tables import Misprint, number, table

STUDY = "factorial-nosql"
REPLICATIONS = 75  #: as section 4 of the study states
_DEGREES = {"DBMS": 2, "Comm": 2, "DBMS*Comm": 4}


def recomputed() -> pd.DataFrame:
    """For each ANOVA: the sum of its shares, and the replications that its F values imply.

    Returns:
        Columns `response`, `operations`, `share_percent` (their sum), `error_degrees` (the median
        of what the three F values imply) and `replications`.
    """
    rows = []
    printed = table(STUDY, "published_anova.csv")
    for (response, operations), effects in printed.groupby(["response", "operations"], sort=False):
        shares = effects.set_index("source")["share_percent"]
        f_values = effects.set_index("source")["f"]
        implied = pd.Series(
            {
                effect: f_values[effect] * degrees * shares["Error"] / shares[effect]
                for effect, degrees in _DEGREES.items()
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


def misprints() -> Iterator[Misprint]:
    """Tables whose F values imply another number of replications than the text states."""
    for _, row in recomputed().iterrows():
        place = f"{row['response']}, {row['operations']} operations"
        if abs(row["share_percent"] - 100) > 0.02:
            yield Misprint(place, "sum of shares", "100", number(row["share_percent"]))
        if round(row["replications"]) != REPLICATIONS:
            yield Misprint(
                place, "replications that F implies", str(REPLICATIONS), number(row["replications"])
            )
