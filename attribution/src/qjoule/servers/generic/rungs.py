# SPDX-License-Identifier: Apache-2.0
"""A server of unknown protocol has no queries."""

from __future__ import annotations

from qjoule.contract import Rung
from qjoule.servers.choice import Case, Choice

_BY_THREAD = Choice(
    Rung.NONE,
    "where its queries begin is not known: CPU time and energy by thread name",
    by_thread=True,
)


def choose_rung(_case: Case) -> Choice:
    """The same for any wish of the user."""
    return _BY_THREAD
