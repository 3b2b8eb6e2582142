# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/servers.md for any other process."""

from __future__ import annotations

from qjoule.servers.supported import Mode, Supported
from qjoule.servers.types import NO_PROTOCOL

ROWS = (Supported(NO_PROTOCOL, "any other process", (Mode("all"),)),)
