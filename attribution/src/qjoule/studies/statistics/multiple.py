"""Holm's correction: of all tests together at most 5 % of studies have a false positive."""

from __future__ import annotations

from collections.abc import Sequence

from statsmodels.stats.multitest import multipletests


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Corrected p values (Holm 1979), in the same order; a None is no test and stays None."""
    known = [p for p in p_values if p is not None]
    if not known:
        return list(p_values)
    corrected = iter(multipletests(known, method="holm")[1])
    return [None if p is None else float(next(corrected)) for p in p_values]
