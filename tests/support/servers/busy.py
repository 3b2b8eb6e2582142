# SPDX-License-Identifier: Apache-2.0
"""A client that keeps a server busy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from qjoule_studies.servers.process import DatabaseServer


def _text(statement: str | Callable[[], str]) -> str:
    return statement if isinstance(statement, str) else statement()


@contextmanager
def busy(server: DatabaseServer, *statements: str | Callable[[], str]) -> Iterator[None]:
    """Executes the last statement over and over, after the others, while the block runs. A function
    is called for the statement each time.
    """
    stop = threading.Event()

    def work() -> None:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            for statement in statements[:-1]:
                cursor.execute(_text(statement))
            while not stop.is_set():
                cursor.execute(_text(statements[-1]))
                cursor.fetchall()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
