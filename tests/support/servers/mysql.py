# SPDX-License-Identifier: Apache-2.0
"""MySQL, because the distribution has only MariaDB."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from qjoule_studies.servers import mysql
from qjoule_studies.servers.accounts import service_account
from servers.fetched.mysql import mysql8015
from servers.process import DatabaseServer


def mysql_server(
    *options: str, installation: Callable[[], Path] = mysql8015
) -> AbstractContextManager[DatabaseServer]:
    """A MySQL with these additional options: 8.0.15 unless another is given. Raises Unavailable.

    It is not root's: what only root may read is not read to find out how a server is configured.
    """
    return mysql.mysql_server(installation(), *options, account=service_account("mysql"))
