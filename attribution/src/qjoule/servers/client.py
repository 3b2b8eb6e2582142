# SPDX-License-Identifier: Apache-2.0
"""Defines what a server can be asked after a login: texts of statements, and names of sessions.

They are asked for statements that were prepared and sessions that were open before tracing began;
only if the user allows it (`--credentials`), and by a process without rights that reads nothing
else (`session.credential_helper`). A server's `Decoding` says which texts of its stream are
placeholders of such statements, and names the module that asks. An answer names a session only if
it has the same client address and port, the same thread and port, or the same thread name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from ipaddress import ip_address
from typing import Any, NamedTuple, Protocol

from qjoule.errors import QjouleError

#: Most statements in one question.
BATCH = 100


@dataclass(frozen=True)
class Account:
    """How to log in to a server. Without a user: the server has no accounts."""

    user: str = ""
    password: str = field(default="", repr=False)
    host: str = "127.0.0.1"
    #: Users, names or numbers, whose servers a product's section holds for, besides root.
    users: tuple[str, ...] = ()
    process: int = 0  #: the traced server's main process, not from the file; 0: unknown


class Text(NamedTuple):
    """A server's answer about a statement."""

    start: bytes
    length: int  #: of the whole statement, in bytes


class TextSource(Protocol):
    """A connection to a server that is asked for texts."""

    def texts(self, keys: Sequence[bytes]) -> Mapping[bytes, Text]:
        """Returns the texts of at most `BATCH` statements; keys are missing if the server has no
        text, or no proven one. Raises whatever its driver raises."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class TextsById:
    """How to ask a server for statements by id."""

    ids: int  #: the dialect of placeholder texts
    statements: int  #: the dialect of the answers
    #: Maps a placeholder text, and the thread on which its session was last seen, to the key of the
    #: statement; None: it cannot be asked for.
    key: Callable[[bytes, int], bytes | None]
    #: The module that asks. It has the class `PreparedStatements(account, port)`, a `TextSource`.
    module: str
    driver: str  #: the Python distribution that it needs
    view: str  #: what is read, for messages
    by_thread: bool = False  #: `key` needs the thread
    refer: frozenset[int] = frozenset()  #: dialects of texts that may refer to such statements

    def connect(self, account: Account, port: int) -> TextSource:
        """Logs in. Raises `QjouleError` without the driver, and whatever the driver raises."""
        name = "PreparedStatements"
        source: TextSource = logged_in(self.module, name, self.driver, account, port)
        return source


def logged_in(module: str, source: str, driver: str, account: Account, port: int) -> Any:
    """Returns a module's `source(account, port)`, which needs this Python distribution.

    Raises `QjouleError` without the distribution, and whatever the source raises.
    """
    try:
        return getattr(import_module(module), source)(account, port)
    except ImportError:
        raise QjouleError(f"{driver} is not installed: pip install 'qjoule[bench]'") from None


#: Most connections in a server's answer.
CONNECTIONS_MAX = 10_000
#: Seconds within which a server has to accept the login, and to answer.
ANSWER_S = 3


class NamedConnection(NamedTuple):
    """Names of a connection, as its server reports them; empty: none."""

    key: str  #: `by_address`, `by_thread` or `by_name`
    user: str
    application: str


def by_address(address: str, port: int) -> str:
    """Returns the key of a connection by its client's address and port, which are unique at a time.
    Raises ValueError for an invalid address."""
    ip = ip_address(address)
    return f"{getattr(ip, 'ipv4_mapped', None) or ip} {port}"


def by_thread(thread: int, port: int) -> str:
    """Returns the key of a connection by its server thread and client port; port 0: it has none,
    as on a unix socket."""
    return f"{thread} {port}"


def by_name(thread: str) -> str:
    """Returns the key of a connection by the name of the thread that serves only it."""
    return thread


class NamesSource(Protocol):
    """A connection to a server that is asked for names."""

    unseen: str  #: which connections `names` leaves out, and why; "": none

    def names(self) -> Iterable[NamedConnection]:
        """Returns the names of at most `CONNECTIONS_MAX` connections. Raises whatever its driver
        raises, and `QjouleError` if the server has no such names."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class NamesBefore:
    """How to ask a server for the names of its sessions."""

    #: The module that asks. It has the class `Connections(account, port)`, a `NamesSource`.
    module: str
    driver: str  #: the Python distribution that it needs
    view: str  #: what is read, for messages
    #: Keys are by thread, so a server with a thread pool cannot be asked.
    by_thread: bool = False
    #: Each connection has a thread with a unique name, which identifies sessions without address.
    by_name: bool = False
    #: Clients may rename their connections; new names are followed with `--client-tags` only.
    with_client_tags: bool = False

    def connect(self, account: Account, port: int) -> NamesSource:
        """Logs in. Raises `QjouleError` without the driver, and whatever the driver raises."""
        source: NamesSource = logged_in(self.module, "Connections", self.driver, account, port)
        return source
