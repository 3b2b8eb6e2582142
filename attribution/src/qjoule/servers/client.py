# SPDX-License-Identifier: Apache-2.0
"""What a server may be asked, once logged in: texts of statements, and names of sessions.

For statements that were prepared, and sessions that were open, before tracing began. Only if the
user allows it (`--credentials`), and only by a process without rights that reads nothing else
(`session.asker`). A server's folder says in its `Decoding` which texts of its stream stand for such
statements, and has a module that asks. An answer names a session only if it has the same client
address and port, the same thread and port, or the same name of its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from ipaddress import ip_address
from typing import Any, NamedTuple, Protocol

from qjoule.errors import QjouleError

#: Statements that are asked for at once.
BATCH = 100


@dataclass(frozen=True)
class Account:
    """How to log in to a server. Without a user: as a server without accounts lets everybody."""

    user: str = ""
    password: str = field(default="", repr=False)
    host: str = "127.0.0.1"
    #: Of servers that a section for all servers of a product holds for, besides root: names, or
    #: numbers.
    users: tuple[str, ...] = ()
    process: int = 0  #: the traced server's main process, not from the file; 0: unknown


class Text(NamedTuple):
    """What a server has of a statement."""

    start: bytes
    length: int  #: of the whole statement, in bytes


class TextSource(Protocol):
    """A connection to a server."""

    def texts(self, keys: Sequence[bytes]) -> Mapping[bytes, Text]:
        """The texts of at most `BATCH` statements; a missing key: the server has none, or not a
        proven one. Raises whatever its driver raises."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class TextsById:
    """Statements that a server can be asked for."""

    ids: int  #: the dialect of texts that stand for them
    statements: int  #: the dialect of the answers
    #: From such a text, and the thread that its session was last seen on, to what names the
    #: statement; None: it cannot be asked for.
    key: Callable[[bytes, int], bytes | None]
    #: The module that asks. It has a `TextSource`, `PreparedStatements(account, port)`.
    module: str
    driver: str  #: the Python distribution that it needs
    view: str  #: what is read, for people
    by_thread: bool = False  #: `key` needs the thread
    refer: frozenset[int] = frozenset()  #: dialects of texts that may refer to such statements

    def connect(self, account: Account, port: int) -> TextSource:
        """Logs in. Raises `QjouleError` without the driver, and whatever the driver raises."""
        name = "PreparedStatements"
        source: TextSource = logged_in(self.module, name, self.driver, account, port)
        return source


def logged_in(module: str, source: str, driver: str, account: Account, port: int) -> Any:
    """A module's `source(account, port)`, which needs this Python distribution.

    Raises `QjouleError` without it, and whatever it raises.
    """
    try:
        return getattr(import_module(module), source)(account, port)
    except ImportError:
        raise QjouleError(f"{driver} is not installed: pip install 'qjoule[bench]'") from None


#: Connections of which a server may tell.
CONNECTIONS_MAX = 10_000
#: Seconds within which a server has to log us in, and to answer.
ANSWER_S = 3


class Told(NamedTuple):
    """What a server says of one of its connections; empty: nothing."""

    key: str  #: `by_address`, `by_thread` or `by_name`
    user: str
    application: str


def by_address(address: str, port: int) -> str:
    """The key of a connection by its client's end, which only one has at a time. Raises ValueError
    for what is no address."""
    ip = ip_address(address)
    return f"{getattr(ip, 'ipv4_mapped', None) or ip} {port}"


def by_thread(thread: int, port: int) -> str:
    """The key of a connection by the thread that serves it and its client's port; 0: it has none,
    as on a unix socket."""
    return f"{thread} {port}"


def by_name(thread: str) -> str:
    """The key of a connection by the name of the thread that serves it alone."""
    return thread


class NamesSource(Protocol):
    """A connection to a server."""

    unseen: str  #: which connections `names` could not tell of, and why; "": it told of all

    def names(self) -> Iterable[Told]:
        """What the server says of its connections, at most `CONNECTIONS_MAX`. Raises whatever its
        driver raises, and `QjouleError` if the server cannot tell."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class NamesBefore:
    """Names that a server can be asked for."""

    #: The module that asks. It has a `NamesSource`, `Connections(account, port)`.
    module: str
    driver: str  #: the Python distribution that it needs
    view: str  #: what is read, for people
    #: Keys are by thread. So a server with a thread pool cannot be asked.
    by_thread: bool = False
    #: Each connection has a thread with a name of its own, by which a session without an address is
    #: known.
    by_name: bool = False
    #: A client may rename its connection, which is followed with `--client-tags` alone.
    with_client_tags: bool = False

    def connect(self, account: Account, port: int) -> NamesSource:
        """Logs in. Raises `QjouleError` without the driver, and whatever the driver raises."""
        source: NamesSource = logged_in(self.module, "Connections", self.driver, account, port)
        return source
