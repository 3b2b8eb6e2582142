# SPDX-License-Identifier: Apache-2.0
"""Finds the module of a server in folders that have one module for each server.

A module has the name of its server in the registry, which may be several products. Other modules
of the folder are helpers.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType

from qjoule.api.servers import registry


def products() -> tuple[str, ...]:
    """Products that a target may be: those whose requests have a language, each by its own name."""
    return tuple(
        product
        for product, server in registry.flavours().items()
        if server.dialects and not server.of
    )


def products_in(package: str) -> tuple[str, ...]:
    """Those that a folder has a module for; imports none of them."""
    spec = find_spec(package)
    folder = spec.submodule_search_locations if spec else None
    modules = {module.name for module in iter_modules(folder)}
    return tuple(one for one in products() if registry.server_of(one).name in modules)


def module_for(package: str, product: str) -> ModuleType:
    """The product's module. Raises ModuleNotFoundError if it, or what it imports, is not there."""
    return importlib.import_module(f"{package}.{registry.server_of(product).name}")
