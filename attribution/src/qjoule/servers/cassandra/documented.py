# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/servers.md for Cassandra."""

from __future__ import annotations

from qjoule.contract import Rung
from qjoule.servers.supported import PLAIN, TLS, UNKNOWN, Functions, Mode, Supported

_TESTED = "5.0.9"

ROWS = (
    Supported(
        "cassandra",
        "Cassandra",
        (PLAIN, TLS, UNKNOWN, Mode("any, with `--agent`", None, None, Rung.AGENT)),
        (_TESTED,),
        (Functions("Cassandra", (), f"Cassandra {_TESTED}"),),
    ),
)
