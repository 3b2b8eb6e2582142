# SPDX-License-Identifier: Apache-2.0
"""How much of each server's CPU time has a named owner."""

from __future__ import annotations

from collections.abc import Sequence

from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.result import ServerCoverage

UNNAMED_ROLES = ("", "(unknown)")


def by_server(ledger: Ledger, labels: Sequence[GroupLabel]) -> tuple[ServerCoverage, ...]:
    """The coverage of each server that ran, sorted by name.

    A query counts if its statement is known; a thread outside of queries counts if it has a
    role. The CPU time of a group that belongs to several servers is listed under
    `labels.SEVERAL`.
    """
    ledger.grow(len(labels))
    spent: dict[str, list[int]] = {}
    for label, ns in zip(labels, ledger.cpu_ns.tolist(), strict=False):
        if label.kind not in ("queries", "background") or not label.server or not ns:
            continue
        sums = spent.setdefault(label.server, [0, 0, 0])
        sums[0] += ns
        if label.kind == "queries":
            sums[1] += ns * label.named
        else:
            sums[2] += ns * (dict(label.keys).get("role", "") not in UNNAMED_ROLES)
    return tuple(ServerCoverage(name, *sums) for name, sums in sorted(spent.items()))
