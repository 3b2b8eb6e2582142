# SPDX-License-Identifier: Apache-2.0
"""Each parser of servers' files reads damaged files for a minute, other ones every night."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fuzz.servers_fuzz import run
from fuzz.servers_targets import PARSERS

pytestmark = pytest.mark.beside

SECONDS = 60.0


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_survives_damaged_files(name: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    *findings, count = run(PARSERS[name](tmp_path), SECONDS, seed, str(tmp_path))
    assert findings == [], f"seed {seed}"
    assert int(count.removesuffix(" inputs")) > 0
