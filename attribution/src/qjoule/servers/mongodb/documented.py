# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/servers.md for MongoDB."""

from __future__ import annotations

from qjoule.servers.mongodb.resolve import SIGNATURES
from qjoule.servers.supported import THREAD_MODES, Functions, Supported

ROWS = (
    Supported(
        "mongodb",
        "MongoDB",
        THREAD_MODES,
        ("stand-in",),  # mongod_like of the tests: it reads, and is called, as a mongod does
        tuple(Functions(versions, (name,)) for versions, name in SIGNATURES),
    ),
)
