# SPDX-License-Identifier: Apache-2.0
"""Why a server cannot be started; a module of its own, which needs no driver."""

from __future__ import annotations

from qjoule.api import QjouleError


class Unavailable(QjouleError):
    """This server cannot be started here; the message says what to install or to fetch."""
