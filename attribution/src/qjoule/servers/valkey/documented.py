# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/servers.md for Valkey."""

from __future__ import annotations

from qjoule.servers.supported import PLAIN, TLS, UNKNOWN, Functions, Mode, Supported

_TESTED = ("8.1", "9.1")

ROWS = (
    Supported(
        "valkey",
        "Valkey",
        (PLAIN, TLS, Mode("io-threads", thread_pool=True), UNKNOWN),
        _TESTED,
        (Functions("Valkey", (), f"Valkey {', '.join(_TESTED)}"),),
    ),
)
