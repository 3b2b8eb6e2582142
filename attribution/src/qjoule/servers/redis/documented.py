# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/servers.md for Redis."""

from __future__ import annotations

from qjoule.servers.supported import PLAIN, TLS, UNKNOWN, Functions, Mode, Supported

_TESTED = ("7.0", "8.0")

ROWS = (
    Supported(
        "redis",
        "Redis",
        (PLAIN, TLS, Mode("io-threads that read", thread_pool=True), UNKNOWN),
        _TESTED,
        (Functions("Redis", (), f"Redis {', '.join(_TESTED)}"),),
    ),
)
