# SPDX-License-Identifier: Apache-2.0
"""CPU time of a trace: of queries by a marker in their text, and the share that has an owner."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from tracing.recording import Run


def seconds_by_marker(run: Run, markers: Iterable[str]) -> dict[str, float]:
    """CPU time of the queries whose text has each marker."""
    segments = run.trace.pandas("segments").dropna(subset="query")
    segments = segments.merge(run.queries[["query", "text"]], on="query")
    ns = segments["t1_ns"] - segments["t0_ns"]
    texts = segments["text"].astype("string")
    return {
        marker: float(ns[texts.str.contains(marker, na=False)].sum()) / 1e9 for marker in markers
    }


def check_owners(run: Run, roles: Iterable[str] = ()) -> pd.DataFrame:
    """At least 98 % of a server's CPU time belongs to a statement, its session or a named role.

    Args:
        roles: names of the server's processes or threads; none: any name will do.

    Returns:
        The server's segments, with `ns`, and the role and kind of their owners.
    """
    owners = run.trace.pandas("owners")[["owner", "kind", "server", "role"]]
    segments = run.trace.pandas("segments").merge(owners, on="owner")
    segments = segments[segments["server"].notna()].merge(
        run.queries[["query", "text", "command"]], on="query", how="left"
    )
    ns = segments["ns"] = segments["t1_ns"] - segments["t0_ns"]
    named = segments["role"].isin([*roles]) if roles else segments["role"].notna()
    statement = segments["text"].notna()
    overhead = segments["command"].isin(["other", "connect"])
    share = ns[statement | overhead | ((segments["kind"] == "server") & named)].sum() / ns.sum()
    keys = [segments[name].astype(str) for name in ("kind", "command", "role")]
    assert share >= 0.98, ns.groupby(keys).sum()
    return segments
