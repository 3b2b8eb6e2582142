# SPDX-License-Identifier: Apache-2.0
"""What servers that run in a JVM share: re-exported from the package."""

from __future__ import annotations

from qjoule.studies.servers.jvm import (
    NO_PERF_FILE,
    java,
    knock,
    modules,
    options_of_user,
    readable,
)

__all__ = [
    "NO_PERF_FILE",
    "java",
    "knock",
    "modules",
    "options_of_user",
    "readable",
]
