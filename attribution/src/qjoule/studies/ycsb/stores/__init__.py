# SPDX-License-Identifier: Apache-2.0
"""YCSB's table on each server."""

from __future__ import annotations

from qjoule.errors import QjouleError
from qjoule.studies.by_server import module_for, products_in
from qjoule.studies.workload import Target
from qjoule.studies.ycsb.store import Store

#: Those with a module here, which has a `STORE`.
FLAVOURS = frozenset(products_in(__name__))


def open_store(target: Target) -> Store:
    """Raises QjouleError: the driver is not installed, or the server does not answer."""
    try:
        found = module_for(__name__, target.flavour).STORE
    except ModuleNotFoundError as error:
        raise QjouleError(f"{error.name} is missing: pip install 'qjoule[bench]'") from error
    try:
        store: Store = found(target)
    except (*found.errors, OSError) as error:
        raise QjouleError(
            f"{target.flavour} at {target.host}:{target.port} does not answer: {error}"
        ) from error
    return store
