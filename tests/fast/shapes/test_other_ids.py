# SPDX-License-Identifier: Apache-2.0
"""Ids of other tools from the stream to every output."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import fake_tracer as ft
from fake_attribution import attribution, query_row
from qjoule.contract import TOLD_ID
from qjoule.engine.accounts import with_ids
from qjoule.engine.recorded import recorded_ids
from qjoule.model.result import Attribution
from qjoule.report.page_data import _rows_by_column
from qjoule.reporters import labels
from qjoule.reporters.json_report import to_arrow, to_json
from qjoule.reporters.result_columns import to_csv
from qjoule.reporters.table import render
from qjoule.servers import registry
from qjoule.servers.decoding import OtherIds, fingerprint
from qjoule.servers.examined_json import examined_from_json
from qjoule.servers.strict_json import InvalidDocument
from qjoule.servers.types import Examined, Fact, Server
from qjoule.shapes.shape import OtherId, certain
from qjoule.stream.blocks import Stream
from qjoule.stream.context import StreamContext
from qjoule.stream.names import Names
from qjoule.stream.record import record
from qjoule.trace import Trace
from qjoule.trace.writer import TraceWriter

POSTGRES, TOLD = registry.dialect("postgres"), registry.dialect("postgres-query-id")
MISSING = OtherId("tool_id", None, "tool 1", "too long")
KNOWN = OtherId("tool_id", "4711", "tool 1")
OTHER = OtherId("tool_id", "-12", "tool 2")


def server(flavour: str = "postgres") -> Server:
    never = Fact(False, "")
    return Server(1, flavour, "17.2", Path(), "", (1, 1), (1,), (), (), never, never)


def other_id(shape: int, number: int) -> bytes:
    text = pa.array([shape, number], pa.uint64()).buffers()[1].to_pybytes()
    assert len(text) == TOLD_ID.itemsize
    return ft.text(shape ^ number, text, dialect=TOLD)


def stream() -> bytes:
    return b"".join(
        [
            ft.head(),
            ft.text(5, b"select a from t", dialect=POSTGRES),
            ft.text(6, b"select b from t", dialect=POSTGRES),
            other_id(5, 7),
            other_id(5, 2**64 - 3),
            other_id(99, 1),  # of a shape that never came
            ft.text(7, b"too short", dialect=TOLD),
            ft.end(ft.BEGIN_NS + ft.MS),
        ]
    )


def recorded(path: Path, ids: OtherIds | None) -> Trace:
    record(Stream(io.BytesIO(stream())), TraceWriter(path), StreamContext(fingerprint, ids=ids))
    return Trace(path)


def name_of(text: bytes) -> str:
    return fingerprint(text, POSTGRES).fingerprint


def test_ids_in_a_trace(tmp_path: Path) -> None:
    ids = recorded_ids([recorded(tmp_path / "t", OtherIds([server()]))])
    first = ids[name_of(b"select a from t")]
    assert [(other_id.name, other_id.id) for other_id in first] == [
        ("pg_queryid", "7"),
        ("pg_queryid", "-3"),
    ]
    (second,) = ids[name_of(b"select b from t")]
    assert second.id is None
    assert "compute_query_id" in second.why
    assert len(ids) == 2
    without = recorded(tmp_path / "without", None)
    assert not (tmp_path / "without" / "ids").exists()
    assert recorded_ids([without]) == {}


def test_ids_in_the_live_view() -> None:
    names = Names(fingerprint, (), ids=OtherIds([server()]))
    for frame in Stream(io.BytesIO(stream())):
        if frame.text:
            names.add_text(frame)
    assert [other_id.id for other_id in names.ids()[name_of(b"select a from t")]] == ["7", "-3"]


def test_an_id_ends_the_reason_why_there_was_none() -> None:
    assert OtherIds([server("redis")]).of(b"select 1", POSTGRES, False, 0) == ()
    assert certain([MISSING, KNOWN, KNOWN]) == (KNOWN,)
    assert certain([MISSING, OTHER]) == (MISSING, OTHER)


@pytest.fixture
def shown() -> Attribution:
    rows = query_row(10**8, "select 1"), query_row(10**7, "select 2"), query_row(10**6, "select 3")
    ids = {rows[0].keys["fingerprint"]: (KNOWN, OTHER), rows[1].keys["fingerprint"]: (MISSING,)}
    return with_ids(attribution(rows, {"idle": 10**9}), ids)


def test_json_csv_and_parquet_have_ids_and_json_the_reason_for_none(shown: Attribution) -> None:
    first, second, third = json.loads(to_json(shown))["rows"]
    assert [other_id["id"] for other_id in first["ids"]["tool_id"]] == ["4711", "-12"]
    assert second["ids"] == {"tool_id": [{"id": None, "of": "tool 1", "why": "too long"}]}
    assert "ids" not in third
    rows = list(csv.DictReader(io.StringIO(to_csv(shown))))
    assert [row["tool_id"] for row in rows[:3]] == ["4711 -12", "", ""]
    assert to_arrow(shown).column("tool_id").to_pylist()[:3] == ["4711 -12", None, None]
    assert to_arrow(shown).schema.field("tool_id").type == pa.string()


def test_a_table_and_the_page_list_a_few_of_them(shown: Attribution) -> None:
    assert "tool_id" not in render(shown, width=120)
    text = render(shown, width=120, ids=True)
    assert "tool_id  4711 (tool 1)" in text
    assert "tool_id  none: too long (tool 1)" in text
    first, _, third = _rows_by_column(shown.rows, energy_known=True)["keys"]
    assert ["tool_id", "4711 (tool 1)"] in first
    assert not third
    many = tuple(OtherId("tool_id", str(n), "tool") for n in range(100))
    pairs = labels.id_pairs(replace(shown.rows[0], ids=many))
    assert len(pairs) == labels.SHOWN_IDS + 1
    assert pairs[-1] == ("tool_id", "and 92 more")


def test_a_vocabulary_from_an_examiner_is_bounded() -> None:
    def document(vocabulary: object) -> bytes:
        return json.dumps(Examined().to_json() | {"vocabulary": vocabulary}).encode()

    wrong: tuple[object, ...] = ([], {"a": -1}, {"a": "b"}, {"a": 1 << 33}, {"a" * 65: 1})
    for bad in wrong:
        with pytest.raises(InvalidDocument):
            examined_from_json(document(bad))
    with pytest.raises(InvalidDocument):
        examined_from_json(document({str(n): n for n in range(4097)}))
