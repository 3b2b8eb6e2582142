# SPDX-License-Identifier: Apache-2.0
"""Classes of groups that are assumed to draw alike, and the hashes that name them in a memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.lazy_import import blake2b
from qjoule.model.energy import I64
from qjoule.model.fit.cells import U64
from qjoule.model.fit.rows import ClassOf
from qjoule.model.labels import (
    FORGOTTEN_PROCESSES,
    FORGOTTEN_ROLES,
    FORGOTTEN_SHAPES,
    NO_TEXT,
    NONE_LABEL,
    NOT_SELECTED,
    OTHER_SHAPES,
    SEVERAL,
    TEXT_LOST,
    GroupLabel,
)
from qjoule.trace.meta import Server

#: Labels that mean different work in another trace.
_NO_WORK = {
    *(FORGOTTEN_PROCESSES, FORGOTTEN_ROLES, FORGOTTEN_SHAPES, NO_TEXT, NONE_LABEL),
    *(NOT_SELECTED, OTHER_SHAPES, SEVERAL, TEXT_LOST),
}


def classes(labels: Sequence[GroupLabel]) -> ClassOf:
    """Maps groups to classes: those that run one statement form one, to have enough to learn from.

    Every other group, including those beyond `labels`, is a class of its own.
    """
    first: dict[tuple[str, ...], int] = {}
    table = np.arange(len(labels), dtype=np.int64)
    for number, label in enumerate(labels):
        statement = dict(label.keys).get("fingerprint") or label.shape
        if label.kind == "queries" and statement:
            table[number] = first.setdefault((statement, label.server), number)

    def class_of(groups: I64) -> I64:
        if not len(table):
            return groups
        labelled = groups < len(table)
        return np.where(labelled, table[np.minimum(groups, len(table) - 1)], groups)

    return class_of


def hashed(*parts: str) -> int:
    """Hashes texts to 64 bits; never 0."""
    text = "\0".join(parts).encode(errors="surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") or 1


@dataclass(frozen=True)
class ClassKeys:
    """Keys of classes, made of their labels. `servers`: (kind, version) by name."""

    labels: Sequence[GroupLabel]
    servers: Mapping[str, tuple[str, str]]

    @staticmethod
    def of(labels: Sequence[GroupLabel], servers: Sequence[Server]) -> ClassKeys:
        names = {server.name or server.kind: (server.kind, server.version) for server in servers}
        return ClassKeys(labels, names)

    def of_classes(self, classes: I64) -> tuple[U64, U64]:
        """Returns the keys of classes, 0 for a class without one, and their servers' releases."""
        pairs = [self._key_and_release(int(number)) for number in classes]
        keys = np.array([key for key, _ in pairs], np.uint64)
        return keys, np.array([release for _, release in pairs], np.uint64)

    def name(self, number: int) -> str:
        """Returns the class's name for notes."""
        label = self.labels[number]
        return label.shape or ", ".join(value for _, value in label.keys) or label.kind

    def _key_and_release(self, number: int) -> tuple[int, int]:
        if number >= len(self.labels):
            return 0, 0
        label = self.labels[number]
        kind, version = self.servers.get(label.server, (label.server, ""))
        if kind == SEVERAL:
            kind, version = "", ""
        keys = dict(label.keys)
        if label.kind == "queries":
            name = keys.get("fingerprint", "")
            if keys.keys() - {"server"} != {"fingerprint"}:
                return 0, 0
        else:
            name = keys.get("role") or keys.get("process") or ""
        if not name or name in _NO_WORK:
            return 0, 0
        return hashed(label.kind, kind, name), hashed(kind, version)
