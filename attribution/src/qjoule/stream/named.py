# SPDX-License-Identifier: Apache-2.0
"""Texts of statements: as a TEXT block brings them, and what is kept of them without literals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from qjoule.shapes.shape import OtherId
from qjoule.stream.blocks import Frame


class Shape(Protocol):
    """A statement without its literals, and the id that names it."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def text(self) -> str: ...


class Fingerprint(Protocol):
    """Makes a statement's shape: `qjoule.servers.shapes.fingerprint`."""

    def __call__(
        self, text: bytes, dialect: int, truncated: bool, *, rules: int | None
    ) -> Shape: ...


@dataclass(frozen=True)
class StatementShape:
    """What is kept of a text, without its literals.

    `single`: the hash is of one query alone. `captured`: the statement as it was sent, only if the
    user asked for literals; `statement_bytes` is its length, of which it may be the beginning.
    """

    shape: int
    fingerprint: str
    text: str
    dialect: int
    server: int | None = None
    truncated: bool = False
    single: bool = False
    t_ns: int = 0
    captured: bytes | None = None
    statement_bytes: int = 0
    ids: tuple[OtherId, ...] = ()  #: that other tools have for it, if they are wanted


@dataclass(frozen=True)
class ReportedQueryId:
    """An id of a shape that its server told."""

    shape: int
    id: OtherId


def dialect_of(frame: Frame) -> int:
    """Number of a TEXT block's dialect. This version may not know it."""
    return int(frame.records[0]["dialect"])


def rules_of(frame: Frame) -> int:
    """Number of the session's settings that a TEXT block's statement is read by."""
    return int(frame.records[0]["rules"])


def is_truncated(frame: Frame) -> bool:
    """Whether the statement of a TEXT block is longer than the text in the block."""
    return int(frame.records[0]["statement_bytes"]) > len(frame.text)
