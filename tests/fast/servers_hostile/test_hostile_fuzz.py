# SPDX-License-Identifier: Apache-2.0
"""The fuzzer of servers' files is repeatable and reports its findings."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fuzz import servers_fuzz
from fuzz.servers_fuzz import mutated, run
from fuzz.servers_targets import PARSERS, Target
from qjoule.errors import QjouleError


def test_inputs_are_the_same_each_time() -> None:
    target = Target([b"abcdefgh" * 20, b"12345678" * 20], lambda _: None, (b"word",))
    first, second = ([mutated(chance, target) for _ in range(200)] for chance in _two_of_one_seed())
    assert first == second
    assert len(set(first)) > 150


def _two_of_one_seed() -> tuple[random.Random, random.Random]:
    return random.Random(5), random.Random(5)


def test_an_exception_is_a_finding_and_its_input_is_kept(tmp_path: Path) -> None:
    def read(content: bytes) -> None:
        if len(content) % 2:
            raise QjouleError("as it should be")
        raise ValueError("odd")

    *findings, count = run(Target([b"ab"], read), 0.05, 1, str(tmp_path))
    assert findings
    assert all("ValueError: odd" in line for line in findings)
    assert len(list(tmp_path.iterdir())) == len(findings)
    assert int(count.removesuffix(" inputs")) > len(findings)


def test_what_takes_too_long_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers_fuzz, "CPU_SECONDS", -1.0)
    *findings, _ = run(Target([b"ab"], lambda _: None), 0.01, 1, str(tmp_path))
    assert all("of CPU time" in line for line in findings)
    assert findings


@pytest.mark.parametrize("name", PARSERS)
def test_each_parser_reads_some_inputs(name: str, tmp_path: Path) -> None:
    (line,) = run(PARSERS[name](tmp_path), 0.3, servers_fuzz.SEED, str(tmp_path))
    assert int(line.removesuffix(" inputs")) > 0
