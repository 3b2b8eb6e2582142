# SPDX-License-Identifier: Apache-2.0
"""MySQL, because the distribution has only MariaDB."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from qjoule.studies.servers import mysql
from servers.fetched import mysql80
from servers.process import DatabaseServer


def mysql_server(
    *options: str, installation: Callable[[], Path] = mysql80.installation
) -> AbstractContextManager[DatabaseServer]:
    """A MySQL with these additional options: 8.0.15 unless another is given, fetched on first use.

    Raises:
        Unavailable: it cannot be fetched, or the system lacks a library.
    """
    return mysql.mysql_server(installation(), *options)
