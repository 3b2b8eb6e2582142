# SPDX-License-Identifier: Apache-2.0
"""The services as systemd rates them: 0 is closed, 10 is open."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[3] / "packaging/systemd"
MOST = 2.5


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", ["qjoule-agent", "qjoule-ship"])
def test_the_exposure_is_bounded(name: str) -> None:
    unit = UNITS / f"{name}.service"
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    shown = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", shown)
    assert found
    assert float(found[1]) <= MOST
    is_watched = {"Type=notify", "WatchdogSec=60"} <= set(unit.read_text().splitlines())
    assert is_watched == (name == "qjoule-agent")
