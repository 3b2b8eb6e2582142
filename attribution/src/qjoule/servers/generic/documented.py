"""What docs/servers.md says of any other process."""

from __future__ import annotations

from qjoule.servers.supported import Mode, Supported
from qjoule.servers.types import GENERIC

ROWS = (Supported(GENERIC, "any other process", (Mode("all"),)),)
