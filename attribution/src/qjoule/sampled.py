# SPDX-License-Identifier: Apache-2.0
"""Queries that were drawn at random, as a live stream's snapshots have them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Texts = list[str | None]


@dataclass(frozen=True)
class Sampled:
    """Drawn queries that ended in an interval, n of them."""

    queries: npt.NDArray[np.void]  #: (n,) `qjoule.contract.QUERY`
    cpu_ns: npt.NDArray[np.int64]  #: (n,)
    probability: npt.NDArray[np.float64]  #: (n,) of being drawn
    #: (n,) From its end to the interval's; negative: it ended after it.
    ago_ns: npt.NDArray[np.int64]
    servers: list[str]
    fingerprints: list[str]  #: empty: the statement is not known
    users: Texts
    databases: Texts
    applications: Texts
    clients: Texts  #: addresses, or `unix`
