# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/servers.md for memcached."""

from __future__ import annotations

from qjoule.servers.supported import PLAIN, TLS, UNKNOWN, Functions, Supported

_TESTED = "1.6.18"

ROWS = (
    Supported(
        "memcached",
        "memcached",
        (PLAIN, TLS, UNKNOWN),
        (_TESTED,),
        (Functions("memcached", (), f"memcached {_TESTED}"),),
    ),
)
