# SPDX-License-Identifier: Apache-2.0
"""A client that keeps a server busy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from qjoule_studies.servers.process import DatabaseServer


@contextmanager
def busy(server: DatabaseServer, *statements: str) -> Iterator[None]:
    """Executes the last statement over and over, after the others, while the block runs."""
    ended = threading.Event()

    def work() -> None:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            for statement in statements[:-1]:
                cursor.execute(statement)
            while not ended.is_set():
                cursor.execute(statements[-1])
                cursor.fetchall()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
