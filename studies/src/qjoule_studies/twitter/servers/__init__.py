# SPDX-License-Identifier: Apache-2.0
"""The pairs on each server."""

from __future__ import annotations

from qjoule.api import QjouleError
from qjoule_studies.by_server import module_for, products_in
from qjoule_studies.twitter.data import Sizes
from qjoule_studies.twitter.pair import Server
from qjoule_studies.workload import Target

DATABASE = "qjoule_twitter"  #: unless the target names one
MARK = "qjoule_twitter_mark"  #: a table or key that says which data are there
LOADING = "loading"  #: its text while they are not complete

#: Those with a module here, which has a `SERVER`.
FLAVOURS = frozenset(products_in(__name__))


def open_server(target: Target, sizes: Sizes) -> Server:
    """Raises QjouleError: the driver is not installed, or the server does not answer."""
    try:
        found = module_for(__name__, target.flavour).SERVER
    except ModuleNotFoundError as error:
        raise QjouleError(
            f"{error.name} is missing: pip install 'qjoule-studies[bench]'"
        ) from error
    try:
        server: Server = found(target, sizes)
    except (*found.errors, OSError) as error:
        raise QjouleError(
            f"{target.flavour} at {target.host}:{target.port} does not answer: {error}"
        ) from error
    return server


def mark_of(sizes: Sizes, seed: int) -> str:
    """What the mark says of complete data."""
    return f"{sizes.tweets} tweets, seed {seed}"
