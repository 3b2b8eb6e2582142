# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL from the distribution, with pg_stat_statements loaded."""

from __future__ import annotations

from qjoule.studies.servers.postgres import (
    postgres_server,
)

__all__ = [
    "postgres_server",
]
