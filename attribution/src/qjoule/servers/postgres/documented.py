# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/servers.md for PostgreSQL."""

from __future__ import annotations

from qjoule.servers.postgres.signatures import FUNCTIONS, MAJORS
from qjoule.servers.supported import PLAIN, TLS, UNKNOWN, Functions, Mode, Supported

_TESTED = ("15", "17", "18")

ROWS = (
    Supported(
        "postgres",
        "PostgreSQL",
        # A process for each connection, always.
        (PLAIN, TLS, Mode(UNKNOWN.title, encryption=None)),
        _TESTED,
        (
            Functions(
                f"PostgreSQL {MAJORS[0]} to {MAJORS[-1]}",
                tuple(FUNCTIONS.values()),
                f"PostgreSQL {', '.join(_TESTED)}",
            ),
        ),
    ),
)
