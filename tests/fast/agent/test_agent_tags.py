# SPDX-License-Identifier: Apache-2.0
"""Sums of an hour by the values of tags: bounded, and the same whatever is folded or restarted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qjoule.agent import config
from qjoule.agent.rollup import Minute
from qjoule.agent.store import Kept, Store
from qjoule.errors import UsageError
from qjoule.fleet.schema import TAG_ROWS
from qjoule.fleet.tag_bound import bounded
from qjoule.metrics.interval import Amounts, Query, Shape, Tagged
from qjoule.trace.arrow import pc

START_S = 1_795_000_000 // 3600 * 3600


def minute(start_s: int, values: dict[str, int]) -> Minute:
    """`values`: energy by the tag's value."""
    found = Minute(start_s, 60.0, "measured", "separate")
    found.node_nj["package"] = 10**9
    shape = Shape("db:1", "", "f1")
    found.add_tagged(
        {Tagged("tenant", value, shape): Query(Amounts(nj, nj, 1)) for value, nj in values.items()}
    )
    return found


def tags(path: Path) -> dict[str, int]:
    (part,) = path.glob("tags/**/hour-11-*.parquet")
    rows = pq.ParquetFile(part).read().to_pylist()
    assert all(row["tag"] == "tenant" and row["kind"] == "queries" for row in rows)
    return {row["value"]: row["energy_nj"] for row in rows}


def test_an_hour_has_the_sums_of_its_minutes_also_after_a_restart(tmp_path: Path) -> None:
    for first in (0, 2):
        store = Store(tmp_path, "db1", Kept(30, 100))
        for number in (first, first + 1):
            assert store.write(minute(START_S + 60 * number, {"a": 5, "b": number}), "package")
        store.close()
    assert tags(tmp_path) == {"a": 20, "b": 6}
    (part,) = tmp_path.glob("tags/**/*.parquet")
    assert pq.read_schema(part).metadata.get(b"qjoule.closed") is None
    store = Store(tmp_path, "db1", Kept(30, 100))
    assert store.write(minute(START_S + 2 * 3600, {}), "package")
    assert pq.read_schema(part).metadata[b"qjoule.closed"] == b"1"
    assert tags(tmp_path) == {"a": 20, "b": 6}


def test_values_beyond_the_bound_are_one(tmp_path: Path) -> None:
    store = Store(tmp_path, "db1", Kept(30, 100, tag_values=2))
    for number in range(3):
        many = {f"new{number}{one}": 1 for one in range(20)}
        assert store.write(minute(START_S + 60 * number, {"a": 50, "b": 40} | many), "package")
    assert tags(tmp_path) == {"a": 150, "b": 120, "other": 60}
    assert store.failures == 0


def test_rows_beyond_the_bound_are_one_and_sums_stay() -> None:
    rows = [
        {"kind": "queries", "fingerprint": f"f{one % 7}", "tag": "t", "value": f"v{one}"}
        | {"energy_nj": 100 - one, "calls": 1, "latency": [1]}
        for one in range(50)
    ]
    table = pa.Table.from_pylist(rows, TAG_ROWS)
    found = bounded(table, START_S, most=50, most_rows=10)
    assert len(found) == 11 and found.schema.equals(TAG_ROWS)
    assert pc.sum(found["energy_nj"]).as_py() == pc.sum(table["energy_nj"]).as_py()
    folded = found.filter(pc.equal(found["value"], "other")).to_pylist()
    assert [(row["fingerprint"], row["calls"], row["latency"]) for row in folded] == [
        ("other", 40, [40])
    ]


def test_without_tags_there_is_no_part(tmp_path: Path) -> None:
    store = Store(tmp_path, "db1", Kept(30, 100))
    assert store.write(minute(START_S, {}), "package")
    assert not (tmp_path / "tags").exists()


@pytest.mark.parametrize(
    "text", ['"tenant"', "[1]", '["a b"]', '["a,b"]', '["a", "a"]', '["a","b","c","d","e"]']
)
def test_wrong_keys_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f"[store]\ntags = {text}\n")
    with pytest.raises(UsageError, match=r"store\.tags must be a list of at most 4 different keys"):
        config.load(file)
    file.write_text('[store]\ntags = ["tenant", "release"]\n')
    assert config.load(file).tags == ("tenant", "release")
    file.write_text('[store]\nenabled = false\ntags = ["tenant"]\n')
    assert config.load(file).tags == ()
