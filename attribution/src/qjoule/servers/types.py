"""What is known of a database server before it is traced."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from qjoule.contract import ServerKind


class Flavour(StrEnum):
    MARIADB = "mariadb"
    MYSQL = "mysql"
    POSTGRES = "postgres"

    @property
    def kind(self) -> ServerKind:
        """The wire protocol and probe layout: MariaDB and MySQL share one."""
        return ServerKind.POSTGRES if self is Flavour.POSTGRES else ServerKind.MYSQL


@dataclass(frozen=True)
class Fact:
    """One fact of a configuration. `value` None: it could not be determined; `source` says why."""

    value: bool | None
    source: str


@dataclass(frozen=True)
class Server:
    """A running server, or an installed executable that may start later (`tgids` empty)."""

    id: int  #: from 1, as in the attach plan
    flavour: Flavour
    version: str  #: "10.11.19", "" when the executable does not say
    exe_path: Path  #: can be opened from here, also for a server in a container
    exe_name: str  #: the path as the server itself sees it
    exe_id: tuple[int, int]  #: (device, inode)
    tgids: tuple[int, ...]  #: the main process first
    ports: tuple[int, ...]
    sockets: tuple[str, ...]
    encryption: Fact  #: may a session be encrypted?
    thread_pool: Fact  #: may a session change its thread?

    @property
    def kind(self) -> ServerKind:
        return self.flavour.kind

    @property
    def running(self) -> bool:
        return bool(self.tgids)

    @property
    def major(self) -> int | None:
        """The first number of the version, None when unknown."""
        head = self.version.split(".", 1)[0]
        return int(head) if head.isdigit() else None

    @property
    def label(self) -> str:
        """A short name for people: `mariadb:3306`."""
        if self.ports:
            return f"{self.flavour}:{self.ports[0]}"
        if self.tgids:
            return f"{self.flavour}:pid-{self.tgids[0]}"
        return str(self.flavour)
