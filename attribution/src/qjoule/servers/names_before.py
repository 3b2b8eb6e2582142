# SPDX-License-Identifier: Apache-2.0
"""Names of sessions that were open before tracing began, asked from the server itself.

As for texts (`servers.texts_by_id`): only if the user allows it (`--credentials`), and only by a
process without rights. A server's folder says in its `Decoding` which module asks. An answer names
a session only if it has the same client address and port, the same thread and port, or the same
name of its thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple, Protocol

from qjoule.servers.texts_by_id import Account, logged_in

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
    found = ip_address(address)
    return f"{getattr(found, 'ipv4_mapped', None) or found} {port}"


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
