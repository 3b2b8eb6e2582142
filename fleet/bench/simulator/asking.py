# SPDX-License-Identifier: Apache-2.0
"""How benches ask `qjoule fleet` about a simulated plan's time."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from fleet.bench.simulator.population import Plan

QJOULE = str(Path(sys.executable).with_name("qjoule"))
ROOT = Path(__file__).resolve().parents[3]


def top_words(root: Path, plan: Plan, *more: str) -> list[str]:
    """The command that ranks the statements of the whole plan."""
    begin, end = plan.begin, plan.begin + timedelta(days=plan.days)
    times = ["--from", f"{begin:%Y-%m-%dT%H:%M:%SZ}", "--to", f"{end:%Y-%m-%dT%H:%M:%SZ}"]
    return [QJOULE, "fleet", "top", str(root), *times, "--json", *more]
