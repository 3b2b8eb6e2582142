# SPDX-License-Identifier: Apache-2.0
"""Options that workloads refuse before they ask a server, and servers that do not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule_studies import goycsb
from qjoule_studies.workload import Target, Value
from qjoule_studies.workloads import workload
from qjoule_studies.workloads.ycsb import DEFAULTS, settings

WRONG: dict[str, list[tuple[str, Value]]] = {
    "ycsb": [
        ("workload", "G"),
        ("workload", "\x1b[2J"),
        ("record_count", 1.5),
        ("operations", 10**18),
        ("threads", 100_000),
        ("colour", "red"),
    ],
    "twitter": [
        ("form", "best"),
        ("rows", 999),
        ("seconds", 0),
    ],
    "load": [
        ("operation", "delete"),
        ("seconds", 0),
        ("connections", 0),
        ("rows", 1),
        ("unheard", 1),
    ],
    "operators": [
        ("operator", "magic"),
        ("parallel_workers", 1.5),
        ("work_mem", "1MB; DROP TABLE x"),
        ("settings", "jit=on; jit=off"),
        ("settings", "x'; DROP=1"),
        ("unheard", 1),
    ],
}


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [(name, *wrong) for name, every in WRONG.items() for wrong in every],
)
def test_options_that_make_no_sense_are_refused(name: str, option: str, value: Value) -> None:
    target = Target("postgres", port=1, user="u")
    with pytest.raises(UsageError, match=option):
        workload(name).run(target, {**workload(name).defaults, option: value})


def test_options_that_do_not_fit_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="threads"):
        settings({**DEFAULTS, "threads": 10, "operations": 9})


@pytest.mark.parametrize("flavour", ["redis", "mariadb", "postgres"])
@pytest.mark.parametrize("name", ["ycsb", "twitter"])
def test_a_server_that_does_not_answer_is_named(
    name: str, flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goycsb, "installed", lambda: Path("/go-ycsb"))
    with pytest.raises(QjouleError, match=f"{flavour} at 127.0.0.1:1 does not answer"):
        workload(name).prepare(Target(flavour, port=1, user="u"), workload(name).defaults)
