# SPDX-License-Identifier: Apache-2.0
"""Makes the labels of the groups that query records belong to, in one pass over the records.

A label depends on few columns, and few of their combinations occur. Each distinct combination is a
*variant*. A record becomes the number of its variant; all else is decided per variant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from qjoule.contract import QueryFlag
from qjoule.engine.columns import Coded, QueryRecords, Value, distinct, joined
from qjoule.engine.keys import EVERYTHING, TAG, LabelIndex, Selection
from qjoule.model.energy import I64, Bool
from qjoule.model.labels import (
    BY_CALLS,
    COUNTED,
    SESSION_OVERHEAD,
    SEVERAL,
    SHAPE_OF,
    TEXT_LOST,
    GroupLabel,
    background,
    stands_for_no_text,
)
from qjoule.model.row_sums import COMMIT

I32 = npt.NDArray[np.int32]
STATEMENTS = ("query", "prepare", "execute", "child")
CALLS = ("query", "execute")
_SHOWN = QueryFlag.OPEN | QueryFlag.PIPELINED | QueryFlag.TRUNCATED
_Variant = tuple[int, ...]


class QueryLabels:
    """Numbers variants of query records, and after `finish` the group of each.

    `columns`: the columns of `queries` that are needed. Statements (also prepared ones) are grouped
    by the keys `by`; those that `where` excludes form one group per server. The cost of requests
    that own no CPU time depends on their shape, so each shape is a group of its own within its row
    (`SHAPE_OF`). Login, ping and the like are the server's background, as `(session overhead)`.
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        server_name: Callable[[int | None], str],
        by: Sequence[str],
        where: Selection = EVERYTHING,
    ) -> None:
        """`texts`: of statements, by fingerprint."""
        self.by = by
        self._wanted = dict(where.wanted)
        self._server_name = server_name
        self.texts = texts
        self._fields = tuple(
            dict.fromkeys((*by, *self._wanted, "fingerprint", "server", "attach_mode"))
        )
        self._value_codes: dict[str, dict[Value, int]] = {name: {} for name in self._fields}
        self._numbers: dict[_Variant, int] = {}
        self._finished = False
        self.group: I64 = np.zeros(0, np.int64)  #: per variant
        self.named: Bool = np.zeros(0, bool)  #: per variant: whether its statement is known

    @property
    def columns(self) -> list[str]:
        special = {"thread": "pid", COMMIT: "query"} | {
            k: "tags" for k in self._fields if k.startswith(TAG)
        }
        keys = [special.get(field, field) for field in self._fields]
        return list(dict.fromkeys([*keys, "shape", "command", "flags"]))

    def variants(self, queries: QueryRecords) -> I32:
        """Returns each record's variant, (n,); -1 for a variant that did not exist at `finish`."""
        statement = queries.command.among(STATEMENTS)
        flags = queries.flags.astype(np.int64) & int(_SHOWN)
        columns = [queries.key(field) for field in self._fields]
        joint = flags * 2 + statement
        size = 2 * int(_SHOWN) + 2
        for column in columns:
            joint, size = joined(joint, size, column)
        row_of, place = distinct(joint, size)
        codes = [
            self._codes(field, column)[column.codes[row_of]]
            for field, column in zip(self._fields, columns, strict=True)
        ]
        rows = np.stack([statement[row_of].astype(np.int64), flags[row_of], *codes], axis=1)
        numbers = [self._number(tuple(row)) for row in rows.tolist()]
        return np.array(numbers, np.int32)[place]

    def finish(self, index: LabelIndex) -> None:
        """Numbers the groups in `index`. Variants that appear later are not added."""
        self._finished = True
        variants = list(self._numbers)
        self.group = np.zeros(len(variants), np.int64)
        values = {field: list(codes) for field, codes in self._value_codes.items()}
        at = self._place("fingerprint")
        texts = [
            isinstance(value, str) and not stands_for_no_text(self.texts.get(value, ""))
            for value in values["fingerprint"]
        ]
        self.named = np.array([bool(v[0]) and texts[v[at]] for v in variants], bool)
        by_keys: dict[tuple[int, ...], list[int]] = {}
        excluded: dict[tuple[int, ...], list[int]] = {}
        parts = {("", ""): 0}
        selected = self._selected(variants, values)
        for number, variant in enumerate(variants):
            if variant[0] and selected[number]:
                keys = tuple(variant[self._place(key)] for key in self.by)
                part = parts.setdefault(self._part(variant, values), len(parts))
                by_keys.setdefault((*keys, part), []).append(number)
            elif variant[0]:
                attach_mode = (
                    variant[self._place("attach_mode")] if self._is_counted(variant, values) else -1
                )
                key = variant[self._place("server")], attach_mode
                excluded.setdefault(key, []).append(number)
        ranks = [*(_ranks(values[key]) for key in self.by), range(len(parts))]
        shapes = [shape for shape, _ in parts]
        for keys in sorted(by_keys, key=lambda k: [r[c] for r, c in zip(ranks, k, strict=True)]):
            numbers = by_keys[keys]
            named = [
                (key, self._name(key, values[key][code]))
                for key, code in zip(self.by, keys, strict=False)
            ]
            if shapes[keys[-1]]:
                named.append((SHAPE_OF, shapes[keys[-1]]))
            label = self._label(named, [variants[number] for number in numbers], values)
            self.group[numbers] = index.number(label)
        for code in sorted(excluded):
            numbers = excluded[code]
            label = self._label([], [variants[number] for number in numbers], values)
            self.group[numbers] = index.not_selected(label, self.by)
        overhead = [number for number, variant in enumerate(variants) if not variant[0]]
        place = self._place("server")
        for number in sorted(overhead, key=lambda number: variants[number][place]):
            server = self._name("server", values["server"][variants[number][place]])
            self.group[number] = index.number(background(server, SESSION_OVERHEAD))

    def _part(self, variant: _Variant, values: dict[str, list[Value]]) -> tuple[str, str]:
        """Returns what separates groups of requests that own no CPU time; two empty texts for other
        queries.

        The first text is server and shape, unless the keys already separate shapes, because costs
        are learned by shape. It is empty for calls that only clients report, whose only shape is
        made of their tags. The second is attach mode and server, see `GroupLabel`.
        """
        if not self._is_counted(variant, values):
            return "", ""
        server, fingerprint, attach_mode = (
            self._name(field, values[field][variant[self._place(field)]])
            for field in ("server", "fingerprint", "attach_mode")
        )
        by_shape = attach_mode != BY_CALLS and "fingerprint" not in self.by
        return f"{server} {fingerprint}" if by_shape else "", f"{attach_mode} {server}"

    def _is_counted(self, variant: _Variant, values: dict[str, list[Value]]) -> bool:
        return values["attach_mode"][variant[self._place("attach_mode")]] in COUNTED

    def _selected(self, variants: list[_Variant], values: dict[str, list[Value]]) -> Bool:
        """Returns (variants,): true where every selected key has an accepted value."""
        selected = np.ones(len(variants), bool)
        for key, wanted in self._wanted.items():
            does = np.array([self._name(key, value) in wanted for value in values[key]], bool)
            codes = np.array([variant[self._place(key)] for variant in variants], np.int64)
            selected &= does[codes]
        return selected

    def _place(self, field: str) -> int:
        return 2 + self._fields.index(field)

    def _number(self, variant: _Variant) -> int:
        if self._finished:
            return self._numbers.get(variant, -1)
        return self._numbers.setdefault(variant, len(self._numbers))

    def _codes(self, field: str, column: Coded) -> I64:
        """Returns codes of a column's values in `_known`, numbered by first appearance."""
        codes = self._value_codes[field]
        if column.only is not None:
            present = [column.only]
        else:
            rows = len(column.codes)
            first = np.full(len(column.values), rows, np.int64)
            first[column.codes[::-1]] = np.arange(rows - 1, -1, -1)
            present = np.argsort(first, kind="stable")[: np.count_nonzero(first < rows)].tolist()
        out = np.full(len(column.values), -1, np.int64)
        for code in present:
            value = column.values[code]
            if not self._finished:
                codes.setdefault(value, len(codes))
            out[code] = codes.get(value, -1)
        return out

    def _label(
        self,
        named: Sequence[tuple[str, str]],
        variants: list[_Variant],
        values: dict[str, list[Value]],
    ) -> GroupLabel:
        shared = {}
        for field in ("fingerprint", "server", "attach_mode"):
            codes = {variant[self._place(field)] for variant in variants}
            value = values[field][codes.pop()]
            shared[field] = SEVERAL if codes else self._name(field, value)
        flags = 0
        for variant in variants:
            flags |= variant[1]
        fingerprint, attach_mode = shared["fingerprint"], shared["attach_mode"]
        text = self.texts.get(fingerprint, fingerprint if fingerprint == TEXT_LOST else "")
        return GroupLabel(
            "queries",
            tuple(named),
            text,
            shared["server"],
            "" if attach_mode == SEVERAL else attach_mode,
            tuple(flag.name.lower() for flag in _SHOWN if flags & flag and flag.name),
            not stands_for_no_text(text),
        )

    def _name(self, field: str, value: Value) -> str:
        if field == "server":
            return self._server_name(int(value) if value else None)
        if value is None:
            return TEXT_LOST
        return f"{value:016x}" if isinstance(value, int) else value


def _ranks(values: list[Value]) -> list[int]:
    """Returns the order of one key's groups: names by first appearance, then hashes by value."""
    hashes = sorted(value for value in values if isinstance(value, int))
    place = {value: len(values) + i for i, value in enumerate(hashes)}
    return [place.get(v, i) if isinstance(v, int) else i for i, v in enumerate(values)]
