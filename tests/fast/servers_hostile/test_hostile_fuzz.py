# SPDX-License-Identifier: Apache-2.0
"""A small corpus of damaged files is replayed; tests/nightly/hostile draws new ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fuzz.servers_fuzz import SEED, finding, mutated, run
from fuzz.servers_targets import PARSERS, Target
from qjoule.errors import QjouleError

CORPUS = 60  #: inputs for each parser, always the same


@pytest.mark.parametrize("name", PARSERS)
def test_each_parser_survives_damaged_files(name: str, tmp_path: Path) -> None:
    target, chance = PARSERS[name](tmp_path), random.Random(SEED)
    for _ in range(CORPUS):
        assert finding(target, mutated(chance, target)) == ""


def test_an_exception_is_a_finding_and_its_input_is_kept(tmp_path: Path) -> None:
    def read(content: bytes) -> None:
        raise QjouleError("refused") if len(content) % 2 else ValueError("a bug")

    *findings, count = run(Target([b"ab"], read), 0.05, 1, str(tmp_path))
    assert findings
    assert all("ValueError: a bug" in line for line in findings)
    assert len(list(tmp_path.iterdir())) == len(findings)
    assert int(count.removesuffix(" inputs")) > len(findings)
