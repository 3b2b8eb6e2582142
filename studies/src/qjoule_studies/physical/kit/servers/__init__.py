# SPDX-License-Identifier: Apache-2.0
"""The kit's servers: a module for each, which is imported only when it is wanted."""

from __future__ import annotations

import importlib
from pkgutil import iter_modules
from typing import Any, cast

from qjoule_studies.physical.kit.loads import Starter


def starters() -> tuple[Starter, ...]:
    """The modules of this folder, the server that must be there first."""
    names = sorted(module.name for module in iter_modules(__path__))
    modules: list[Any] = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return tuple(cast("Starter", one) for one in sorted(modules, key=lambda one: one.ORDER))
