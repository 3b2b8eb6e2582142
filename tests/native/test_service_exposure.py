# SPDX-License-Identifier: Apache-2.0
"""The agent's service as systemd rates it: 0 is closed, 10 is open."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "packaging/systemd/qjoule-agent.service"
MOST = 2.5


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_exposure_is_bounded() -> None:
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)]
    shown = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", shown)
    assert found
    assert float(found[1]) <= MOST
    assert "Type=notify" in UNIT.read_text()
    assert "WatchdogSec=" in UNIT.read_text()
