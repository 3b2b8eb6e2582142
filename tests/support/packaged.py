# SPDX-License-Identifier: Apache-2.0
"""What is in `packaging/` and no part of a Python package."""

from __future__ import annotations

from pathlib import Path

import dashboards

__all__ = ["MONITORING", "dashboards"]

MONITORING = Path(__file__).parents[2] / "packaging" / "monitoring"
