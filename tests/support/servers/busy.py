# SPDX-License-Identifier: Apache-2.0
"""A client that keeps a server busy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, closing

from qjoule_studies.servers.process import DatabaseServer
from waiting import in_background


def _text(statement: str | Callable[[], str]) -> str:
    return statement if isinstance(statement, str) else statement()


def busy(
    server: DatabaseServer, *statements: str | Callable[[], str]
) -> AbstractContextManager[None]:
    """Executes the last statement over and over, after the others, while the block runs. A function
    is called for the statement each time.
    """

    def work(stop: threading.Event) -> None:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            for statement in statements[:-1]:
                cursor.execute(_text(statement))
            while not stop.is_set():
                cursor.execute(_text(statements[-1]))
                cursor.fetchall()

    return in_background(work)
