# SPDX-License-Identifier: Apache-2.0
"""MariaDB from the distribution (`mariadb-server-core`)."""

from __future__ import annotations

from qjoule_studies.servers.mysql import connect_mysql, mariadb_server

__all__ = ["connect_mysql", "mariadb_server"]
