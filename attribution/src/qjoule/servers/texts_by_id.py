# SPDX-License-Identifier: Apache-2.0
"""Texts of statements that were prepared before tracing began, asked from the server itself.

Only if the user allows it (`--credentials`), and only by a process without rights that reads
nothing else (`session.credential_helper`). A server's folder says in its `Decoding` which texts of
its stream stand for such statements, and has a module that asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
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
        raise QjouleError(f"{driver} is not installed: pip install 'qjoule[credentials]'") from None
