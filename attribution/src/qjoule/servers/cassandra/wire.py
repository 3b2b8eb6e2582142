# SPDX-License-Identifier: Apache-2.0
"""Decodes Cassandra's data: shapes of CQL, and tags in custom payloads.

The kernel side hashes CQL by the table `SLASHED_RULES`: strings without escapes, `$$` quotes, names
in double quotes, comments that may also begin with `//` and do not nest. CQL's additional
constants are folded here: UUIDs (`123e4567-e89b-…`), durations (`2h30m`, `P1DT2H`), `NaN`,
`Infinity` and others that begin with a digit. So several hashes may have the same shape, but never
the reverse. Source: cassandra src/antlr/Lexer.g.

A text of the dialect `cql-id` is the 16-byte id of a statement that was prepared before tracing
began. It is empty for a compressed request that could not be inflated. A text of `cql-batch` holds
the hashes of the batch's statements, 8 bytes each, where equal neighbours appear once. The
statements themselves were sent before.

Custom payloads are those of native_protocol_v4.spec, 2.2: tags are entries with keys `qjoule.KEY`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from functools import lru_cache, partial

from qjoule.servers.client import TextsById
from qjoule.servers.decoding_types import Decoding, Language
from qjoule.servers.registry import dialect
from qjoule.servers.registry import dialect as number_of
from qjoule.shapes.automaton import NUMBER, STRING
from qjoule.shapes.rules import SLASHED_RULES, Lexis
from qjoule.shapes.safe_text import sanitise
from qjoule.shapes.shape import Texts
from qjoule.shapes.sql import sql_shape
from qjoule.shapes.summary import sql_summary
from qjoule.tags.definitions import PREFIX, Tags, believed

CQL, CQL_ID, CQL_BATCH = number_of("cql"), number_of("cql-id"), number_of("cql-batch")
COMPRESSED = "(compressed request)"
_PREPARED = "(prepared before tracing began)"
_UNKNOWN = "(statement not seen)"
_DIGITS = rf"[0-9a-fA-F{NUMBER}]"
_NAME = r'"[^"]*+(?:""[^"]*+)*+"?'  #: a quoted name
_BEFORE, _AFTER = rf"(?<![\w{NUMBER}-])", rf"(?![\w{NUMBER}-])"
#: Groups of 8, 4, 4, 4 and 12 digits; a number has become one mark.
_UUID = re.compile(
    rf"{_NAME}|{_BEFORE}((?=[^ ]*{NUMBER}){_DIGITS}{{1,8}}"
    rf"(?:-{_DIGITS}{{1,4}}){{2,3}}-{_DIGITS}{{1,12}}"
    rf"|[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}){_AFTER}"
)
_WITH_UNITS = re.compile(rf"{_NAME}|({NUMBER}[{NUMBER}0-9A-Za-z_\xb5\xc2]+)")
#: Durations as in ISO 8601, of which `P0001-02-03T04:05:06` is one, and numbers with a name.
_WORDS = re.compile(
    rf"{_NAME}|(?<![\w{NUMBER}])(P[0-9]+-{NUMBER}-{NUMBER}(?::{NUMBER}){{2}}"
    rf"|P(?=T?[0-9])(?:[0-9]+[YMWD])*(?:T(?:[0-9]+[HMS])+)?|(?i:nan|infinity))(?![\w{NUMBER}])"
)


def constants_folded(reduced: str) -> str:
    """Replaces CQL's own constants in a reduced statement (`reduction.reduce_statement`) by
    marks."""
    for constant, mark in ((_UUID, STRING), (_WITH_UNITS, NUMBER), (_WORDS, NUMBER)):
        reduced = constant.sub(partial(_marked, mark), reduced)
    return reduced


def _marked(mark: str, match: re.Match[str]) -> str:
    """Returns a constant's mark; a quoted name is kept."""
    return mark if match[1] else match[0]


def id_shape(text: bytes) -> str:
    """Returns a placeholder for a statement of which only the id is known."""
    if not text:
        return COMPRESSED
    return f"{_PREPARED[:-1]}: 0x{text.hex()})"


LANGUAGE = Language(
    shape=partial(sql_shape, lexis=Lexis.STANDARD, fold=constants_folded, rules=SLASHED_RULES),
    summary=partial(sql_summary, lexis=Lexis.STANDARD),
    lexis=Lexis.STANDARD,
)
#: Statements of which only the id is known.
PREPARED = Language(
    shape=lambda text, truncated: (sanitise(id_shape(text)), truncated), summary=str
)


class Batches:
    """Texts of CQL shapes by hash, to show a batch by its statements.

    Keeps the most recently used texts: see `Texts`.
    """

    def __init__(self) -> None:
        self._texts = Texts()

    def learn(self, shape: int, dialect: int, text: str) -> None:
        """Stores the shape's text."""
        if dialect == CQL:
            self._texts.add(shape, text)
        elif dialect == CQL_ID:
            self._texts.add(shape, _PREPARED)

    def forget(self, shape: int) -> None:
        """Forgets the shape's text."""
        self._texts.forget(shape)

    def waits(self, _text: bytes, _dialect: int) -> bool:
        """Returns false: a batch's statements come before it, or not at all."""
        return False

    def statement(self, text: bytes, dialect: int) -> tuple[bytes, int]:
        """Returns a batch's record as one CQL statement; any other text unchanged."""
        if dialect != CQL_BATCH:
            return text, dialect
        hashes = struct.unpack(f"<{len(text) // 8}Q", text[: len(text) // 8 * 8])
        parts = [self._texts.get(shape) or _UNKNOWN for shape in hashes]
        return "; ".join(["BEGIN BATCH", *parts, "APPLY BATCH"]).encode(), CQL


@lru_cache(maxsize=4096)
def tags_in_payload(block: bytes) -> Tags:
    """Reads tags by key, from entries of a custom payload as sent, without their count.

    Of several entries with one key the last counts, as in the server. Entries without a value are
    left out.
    """
    try:
        return believed(_entries(block))
    except IndexError:
        return ()


def _entries(block: bytes) -> Iterable[tuple[str, str]]:
    """Yields key and value. Raises IndexError if the block is cut off."""
    while block:
        name, block = _sized(block, 2)
        value, block = _sized(block, 4)
        if name and value is not None and name.startswith(PREFIX.encode()):
            key = name.decode("utf-8", "replace").removeprefix(PREFIX)
            yield key, value.decode("utf-8", "replace")


def _sized(block: bytes, width: int) -> tuple[bytes | None, bytes]:
    """Splits off a [string] or [bytes] with a length of `width` bytes (None: no value)."""
    size = int.from_bytes(block[:width], "big", signed=width > 2)
    end = width + max(size, 0)
    if end > len(block):
        raise IndexError
    return None if size < 0 else block[width:end], block[end:]


DECODING = Decoding(
    languages={
        dialect("cql"): LANGUAGE,
        dialect("cql-id"): PREPARED,
        dialect("cql-batch"): LANGUAGE,
    },
    tag_readers={dialect("payload"): tags_in_payload},
    references=Batches,
    texts_by_id=TextsById(
        ids=dialect("cql-id"),
        statements=dialect("cql"),
        key=lambda text, _thread: text or None,
        module="qjoule.servers.cassandra.client",
        driver="cassandra-driver",
        view="system.prepared_statements",
        refer=frozenset({dialect("cql-batch")}),
    ),
    # org.apache.cassandra.concurrent.Stage. Workers are shared; their name is that of the stage
    # they currently work for.
    serving_threads=(
        *("Native-Transpor", "ReadStage", "MutationStage", "CounterMutation", "ViewMutation"),
        *("RequestRespons", "SharedPool-Work", "epollEventLoopG", "nioEventLoopGro"),
    ),
)
