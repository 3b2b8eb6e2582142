# SPDX-License-Identifier: Apache-2.0
"""Which CPU time has a named owner: computed by hand."""

from __future__ import annotations

import numpy as np

from qjoule.model.coverage import by_server
from qjoule.model.labels import KERNEL, GroupLabel, background, process
from qjoule.model.ledger import Ledger
from qjoule.model.result import ServerCoverage


def query(server: str, named: bool) -> GroupLabel:
    return GroupLabel("queries", (("fingerprint", server),), "", server, "socket", (), named)


def test_named_queries_and_roles_count() -> None:
    labels = [
        query("db:1", True),
        query("db:1", False),
        background("db:1", "purge"),
        background("db:1", "(unknown)"),
        query("other:2", True),
        background("idle:3", "main"),
        process("cron"),
        KERNEL,
    ]
    ledger = Ledger((), (0,))
    ledger.grow(len(labels))
    ledger.cpu_ns[:] = np.array([600, 100, 250, 50, 7, 0, 10_000, 10_000])
    first, second = by_server(ledger, labels)
    assert first == ServerCoverage("db:1", 1000, 600, 250)
    assert first.named == 0.85
    assert (second.server, second.named) == ("other:2", 1.0)


def test_no_server_has_no_coverage() -> None:
    assert by_server(Ledger((), (0,)), [KERNEL]) == ()
