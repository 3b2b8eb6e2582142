# SPDX-License-Identifier: Apache-2.0
"""What is in `packaging/` and no part of a Python package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

MONITORING = Path(__file__).parents[1] / "packaging" / "monitoring"


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"packaged_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


dashboards = _module(MONITORING / "dashboards.py")
