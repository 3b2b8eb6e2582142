# SPDX-License-Identifier: Apache-2.0
"""Whether the calls of a test kept its budget, from the JSON of `qjoule attribute`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

#: The tag that a test's calls carry.
TAG = "energy_test"


@dataclass(frozen=True)
class Verdict:
    """`status` with the reason in words; `figures` for reports. Joules of one call are unknown
    (None) where no call was seen, or there is no energy."""

    status: Literal["kept", "exceeded", "not separable"]
    words: str
    figures: dict[str, Any] = field(default_factory=dict)


def judge(document: dict[str, Any], value: str, budget_j: float) -> Verdict:
    """The verdict of a recording on the test whose calls carry the tag `TAG` = `value`.

    The tagged calls count. If no call is tagged (the driver has no shim, or runs in another
    process), all calls to the recorded servers in that time count, and the words say so.

    Args:
        document: `qjoule.attribution/1`, grouped by the tag.
        budget_j: joules per call.
    """
    rows = document["rows"]
    mine = [row for row in rows if row[f"tag:{TAG}"] == value and row["calls"]]
    counted = mine or [row for row in rows if row["calls"]]
    others = sum(row["calls"] for row in rows) - sum(row["calls"] for row in counted)
    how = "by tag" if mine else "by time span: also what others called meanwhile"
    if others:
        how += f", {others:,} calls of others not counted"
    source, policy = document["energy_source"], document["policy"]
    grade = f"energy {source['grade']}, idle {policy['idle']}"
    figures = _figures(counted)
    about = {
        "budget_j_per_call": budget_j,
        "grade": source["grade"],
        "idle_policy": policy["idle"],
        "counted": "tag" if mine else "span",
        **figures,
    }
    loss = document["trace"]["loss"]
    lost = f"; lost: {', '.join(f'{cause} {n}' for cause, n in loss.items())}" if loss else ""
    if not figures["calls"]:
        return Verdict("not separable", f"no call of it was seen ({grade}{lost})", about)
    if figures["j_per_call"] is None:
        return Verdict("not separable", f"its joules are unknown ({grade}{lost})", about)
    low, high = figures["j_per_call_low95"], figures["j_per_call_high95"]
    words = (
        f"{figures['j_per_call']:.3g} J/call ({low:.3g} to {high:.3g} at 95 %) over "
        f"{figures['calls']:,} calls ({how}), budget {budget_j:g} J/call; {grade}{lost}"
    )
    if low > budget_j:
        return Verdict("exceeded", words, about)
    return Verdict("kept" if high <= budget_j else "not separable", words, about)


def _figures(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of all rows together. Their errors are common, so the ends of their intervals add up."""
    calls = sum(row["calls"] for row in rows)
    names = ("j_per_call", "j_per_call_low95", "j_per_call_high95")
    if not calls or any(row["energy_j"] is None for row in rows):
        return {"calls": calls, **dict.fromkeys(names)}
    energies = [(row["energy_j"], *row["energy_j_ci95"]) for row in rows]
    sums = [sum(column) / calls for column in zip(*energies, strict=True)]
    return {"calls": calls, **dict(zip(names, sums, strict=True))}
