# SPDX-License-Identifier: Apache-2.0
"""Maps shape hashes to fingerprints, in bounded memory even if clients send ever new shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from qjoule.contract import SHAPE_OTHER
from qjoule.lazy_import import LazyModule, pa
from qjoule.servers import registry
from qjoule.servers.decoding import LANGUAGES, AllReferences, OtherIds
from qjoule.shapes.shape import OtherId
from qjoule.stream.blocks import Frame
from qjoule.stream.names import (
    Fingerprint,
    ReportedQueryId,
    Shape,
    StatementShape,
    dialect_of,
    is_truncated,
    rules_of,
)
from qjoule.trace.columns import Array, distinct, names
from qjoule.trace.vocabulary import DIALECTS, OTHER_FINGERPRINT

if TYPE_CHECKING:
    from qjoule.trace import schema
else:
    schema = LazyModule("qjoule.trace.schema")

MAX_SHAPES = 50_000
#: Characters of each text that `Statements.name_of` returns.
START_CHARACTERS = 100
#: Several hashes may have the same fingerprint: this many on average.
HASHES_PER_SHAPE = 4
#: Hashes of single queries that have not ended. Beyond this number the oldest are forgotten.
MAX_SINGLES = 100_000
#: Statements of unknown text, prepared before tracing, with a row each: a pool may have many.
MAX_UNSEEN = 1_000
_UNSEEN = registry.dialect("unseen")
MAX_WAITING = 4_096  #: texts of up to 4 KiB that refer to another text that has not arrived


class Statements:
    """Names the shapes of a stream.

    At most `max_shapes` fingerprints get a row in `shapes`; statements beyond them are
    `OTHER_FINGERPRINT`. `capture` keeps one full statement of each shape hash as well. `ids` finds
    the ids that other tools have for a statement; None: they are not wanted. `on_named` is called
    with each new text and reported id. `starts`: keep the start of each text, for `name_of`.
    """

    def __init__(
        self,
        fingerprint: Fingerprint,
        *,
        max_shapes: int = MAX_SHAPES,
        capture: bool = False,
        ids: OtherIds | None = None,
        on_named: Callable[[StatementShape | ReportedQueryId], object] = lambda _statement: None,
        starts: bool = True,
    ) -> None:
        self._keeps_starts = starts
        self._other_ids = ids
        self._ids: list[dict[str, object]] = []
        self._reported_ids = 0
        self._fingerprint = fingerprint
        self._max_shapes = max_shapes
        self._capture = capture
        self._on_named = on_named
        self._references = AllReferences()
        self._waiting: dict[int, Frame] = {}  #: texts that refer to one that has not arrived
        self._singles: dict[int, int] = {}  #: hash of a single query to the hash of its shape
        self._first: dict[str, int] = {}  #: by fingerprint: the first such hash
        self._vocabulary: list[str | None] = [OTHER_FINGERPRINT]
        self._starts = [OTHER_FINGERPRINT]  #: the start of each text, by the same codes
        self._codes: dict[str, int] = {OTHER_FINGERPRINT: 0}
        self._by_hash: dict[int, int] = {0: -1, SHAPE_OTHER: 0}
        self._full = self._hashes_full = False
        self._unseen = 0
        self._shapes: list[dict[str, object]] = []
        self._statements: list[dict[str, object]] = []
        #: Shapes of statements that change their session's default database, and the new database.
        self.databases: dict[int, str | None] = {}

    @property
    def taken(self) -> int:
        """How many texts and ids take memory."""
        return len(self._by_hash) + len(self._first) + self._reported_ids

    def anew(self, statements: Iterable[StatementShape]) -> Statements:
        """A copy that knows only these texts, so that a recorder's memory stays bounded."""
        fresh = Statements(
            self._fingerprint,
            max_shapes=self._max_shapes,
            capture=self._capture,
            ids=self._other_ids,
            starts=self._keeps_starts,
        )
        for statement in statements:
            fresh.learn(statement)
            fresh._references.learn(statement.shape, statement.dialect, statement.text)
        fresh.drop_rows()
        fresh._waiting = self._waiting
        fresh._on_named = self._on_named
        return fresh

    def add(self, frame: Frame) -> None:
        """Takes in the text of a shape (a TEXT block). Repeated hashes cost a lookup."""
        shape = int(frame.records[0]["shape"])
        if shape in self._by_hash:
            return
        dialect = dialect_of(frame)
        if self._other_ids is not None and (reported := self._other_ids.read(frame.text, dialect)):
            self.learn_id(ReportedQueryId(*reported))
            return
        has_language = dialect in LANGUAGES
        if has_language and frame.records[0]["single"]:
            self._name(frame, single=True)
            return
        if has_language and self._references.waits(frame.text, dialect):
            if len(self._waiting) < min(self._max_shapes, MAX_WAITING):
                self._waiting[shape] = frame
            return
        self._waiting.pop(shape, None)
        self._name(frame)

    def learn_id(self, reported: ReportedQueryId) -> None:
        """Takes in an id that a server reported."""
        self._reported_ids += 1
        if self._reported_ids <= HASHES_PER_SHAPE * self._max_shapes:
            self._on_named(reported)
            self._add_ids(reported.shape, [reported.id])

    def learn(self, statement: StatementShape) -> None:
        """Takes in a text's shape. Repeated hashes cost a lookup."""
        if statement.shape in self._by_hash or statement.dialect not in LANGUAGES:
            return
        self._on_named(statement)
        if statement.single:
            first = self._first.get(statement.fingerprint)
            if first is not None or len(self._first) >= self._max_shapes:
                self._map_single(statement.shape, first)
                return
            self._first[statement.fingerprint] = statement.shape
        self._add_shape(statement)

    def _map_single(self, shape: int, first: int | None) -> None:
        """Maps a single query's hash to `first`, that of the first query of its fingerprint."""
        if first is None:
            self._note_other()
        self._singles[shape] = SHAPE_OTHER if first is None else first
        if len(self._singles) > MAX_SINGLES:
            self._singles.pop(next(iter(self._singles)))

    def settled(self, shapes: Array) -> Array:
        """Shape hashes of ended queries; those of single queries are replaced by their shape's."""
        if not self._singles:
            return shapes
        settled = shapes.copy()
        single = np.isin(shapes, np.fromiter(self._singles, np.uint64))
        for at in np.flatnonzero(single).tolist():
            settled[at] = self._singles.pop(int(shapes[at]), shapes[at])
        return settled

    def _name(self, frame: Frame, *, single: bool = False) -> None:
        """Takes in a text. Of single queries, the first of a fingerprint lends its hash to all."""
        dialect = dialect_of(frame)
        if dialect not in LANGUAGES:  # from a later version: the shape gets no name
            return
        if not single and self._no_more_hashes():
            return
        text, read_as = self._references.statement(frame.text, dialect)
        truncated, rules = is_truncated(frame), rules_of(frame)
        normalised = self._fingerprint(text, read_as, truncated, rules=rules)
        ids: tuple[OtherId, ...] = ()
        if not single or normalised.fingerprint not in self._first:
            self._references.learn(int(frame.records[0]["shape"]), dialect, normalised.text)
            if self._other_ids is not None:
                ids = tuple(self._other_ids.of(text, read_as, truncated, rules))
        self.learn(self._without_literals(frame, normalised, ids, single=single))

    def _no_more_hashes(self) -> bool:
        """Whether there are so many hashes that further ones get no name."""
        if len(self._by_hash) <= HASHES_PER_SHAPE * self._max_shapes:
            return False
        self._note_other()
        self._hashes_full = True
        return True

    def _without_literals(
        self, frame: Frame, normalised: Shape, ids: tuple[OtherId, ...], *, single: bool
    ) -> StatementShape:
        record = frame.records[0]
        return StatementShape(
            shape=int(record["shape"]),
            fingerprint=normalised.fingerprint,
            text=normalised.text,
            dialect=dialect_of(frame),
            server=int(record["server"]) or None,
            truncated=is_truncated(frame),
            single=single,
            t_ns=frame.t_ns,
            captured=frame.text if self._capture else None,
            statement_bytes=int(record["statement_bytes"]),
            ids=ids,
        )

    def _add_shape(self, statement: StatementShape) -> None:
        if self._no_more_hashes():
            return
        if statement.dialect == _UNSEEN:
            self._unseen += 1
            if self._unseen > MAX_UNSEEN:
                self._by_hash[statement.shape] = -1
                return
        code = self._code(statement.fingerprint, statement.text)
        self._by_hash[statement.shape] = code
        if change := LANGUAGES[statement.dialect].database(statement.text):
            self.databases[statement.shape] = change.database
        if code:
            row: dict[str, object] = {"shape": statement.shape, "text": statement.text}
            row |= {"fingerprint": statement.fingerprint, "server": statement.server}
            row |= {"dialect": DIALECTS[statement.dialect]}
            self._shapes.append(row | {"truncated": statement.truncated})
            self._add_ids(statement.shape, statement.ids)
        if statement.captured is not None:
            row = {"shape": statement.shape, "t_ns": statement.t_ns, "server": statement.server}
            row |= {"text": statement.captured, "statement_bytes": statement.statement_bytes}
            self._statements.append(row)

    def settle(self) -> None:
        """Names the waiting texts without the texts that they refer to."""
        for shape in list(self._waiting):
            self._name(self._waiting.pop(shape))

    def fingerprints(self, shapes: Array) -> pa.DictionaryArray:
        """Fingerprint of each shape hash; null if its text has not arrived (yet, or at all)."""
        codes, uniques = distinct(shapes)
        for shape in self._waiting.keys() & set(uniques.tolist()):
            self._name(self._waiting.pop(shape))
        unnamed = 0 if self._hashes_full else -1
        shape_codes = [self._by_hash.get(shape, unnamed) for shape in uniques.tolist()]
        return names(np.array(shape_codes, np.int64), self._vocabulary, codes)

    def name_of(self, shape: int) -> tuple[str, str]:
        """Fingerprint and start of the text of a shape hash, or placeholders if it is unknown."""
        code = self._by_hash.get(shape, -1)
        if code < 0:
            return "?", "(text not seen)"
        return self._vocabulary[code] or "", self._starts[code]

    def take_shapes(self) -> pa.Table:
        """Rows of `shapes` since the last call."""
        rows, self._shapes = self._shapes, []
        return pa.Table.from_pylist(rows, schema.SHAPES)

    def take_ids(self) -> pa.Table:
        """Rows of `ids` since the last call."""
        rows, self._ids = self._ids, []
        return pa.Table.from_pylist(rows, schema.IDS)

    def take_statements(self) -> pa.Table:
        """Rows of `statements` since the last call; none unless capturing."""
        rows, self._statements = self._statements, []
        return pa.Table.from_pylist(rows, schema.STATEMENTS)

    def drop_rows(self) -> None:
        """Forgets what the three above would return, for a capture, which makes no tables."""
        self._shapes, self._ids, self._statements = [], [], []

    def _add_ids(self, shape: int, ids: Iterable[OtherId]) -> None:
        self._ids += [
            {"shape": shape, **other_id._asdict(), "why": other_id.why or None} for other_id in ids
        ]

    def _code(self, fingerprint: str, text: str) -> int:
        code = self._codes.get(fingerprint)
        if code is None:
            if len(self._vocabulary) > self._max_shapes:
                self._note_other()
                return 0
            code = self._codes[fingerprint] = len(self._vocabulary)
            self._vocabulary.append(fingerprint)
            if self._keeps_starts:
                self._starts.append(text[:START_CHARACTERS])
        return code

    def _note_other(self) -> None:
        """Adds the one row for all statements beyond the bound."""
        if not self._full:
            self._full = True
            text = f"(statements beyond the first {self._max_shapes} shapes)"
            row = {"shape": SHAPE_OTHER, "fingerprint": OTHER_FINGERPRINT, "text": text}
            self._shapes.append(row)
