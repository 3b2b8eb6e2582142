# SPDX-License-Identifier: Apache-2.0
"""Adds the ids that other tools have for statements to the rows of an attribution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from qjoule.model.result import Attribution
from qjoule.shapes.shape import OtherId, certain
from qjoule.trace.reader import Trace

Ids = Mapping[str, tuple[OtherId, ...]]  #: by fingerprint


def recorded_ids(traces: Iterable[Trace]) -> Ids:
    """The ids in some traces; none if they were recorded without."""
    found: dict[str, dict[OtherId, None]] = {}
    for trace in traces:
        if not trace.rows("ids"):
            continue
        shapes = trace.table("shapes").select(["shape", "fingerprint"]).to_pylist()
        fingerprints = {row["shape"]: row["fingerprint"] for row in shapes}
        for row in trace.table("ids").to_pylist():
            fingerprint = fingerprints.get(row["shape"])
            if fingerprint is not None:
                one = OtherId(row["name"], row["id"], row["of"], row["why"] or "")
                found.setdefault(fingerprint, {})[one] = None
    return {fingerprint: certain(ids) for fingerprint, ids in found.items()}


def with_ids(attribution: Attribution, ids: Ids) -> Attribution:
    """The attribution with the ids of each row's statement."""
    if not ids:
        return attribution
    rows = tuple(
        replace(row, ids=ids.get(row.keys.get("fingerprint", ""), ())) for row in attribution.rows
    )
    return replace(attribution, rows=rows)
