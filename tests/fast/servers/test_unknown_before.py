# SPDX-License-Identifier: Apache-2.0
"""`doctor` says beforehand which labels of older sessions and statements stay unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.servers.blind_spots import resolution_of
from qjoule.servers.types import Fact, Server

SERVER = Server(
    *(1, "cassandra", "", Path("/x"), "/x", (1, 2), (7,), (9042,), ()),
    encryption=Fact(False, ""),
    thread_pool=Fact(False, ""),
)


@pytest.mark.parametrize(
    ("flavour", "label"),
    [
        ("cassandra", "--credentials FILE"),
        ("postgres", "user and database"),
        ("mongodb", "(appName)"),
        ("redis", "CLIENT SETNAME"),
        ("valkey", "CLIENT SETNAME"),
    ],
)
def test_a_line_for_each_label(flavour: str, label: str) -> None:
    notes = resolution_of(replace(SERVER, flavour=flavour)).notes
    assert [note for note in notes if label in note and "before tracing" in note], notes
