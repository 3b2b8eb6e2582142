"""Who is believed in tests: connections that are made up have no owner that the kernel knows."""

from __future__ import annotations

import os

from qjoule.tags.definitions import Connection
from qjoule.tags.owners import Owner


class Everyone:
    """All connections are this process's own user's."""

    def owner_of(self, connection: Connection) -> Owner | None:
        del connection
        return Owner(os.geteuid(), b"")

    def close(self) -> None:
        pass
