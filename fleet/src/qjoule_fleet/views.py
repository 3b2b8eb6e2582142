# SPDX-License-Identifier: Apache-2.0
"""The views for questions, in SQL that DuckDB and Spark both understand.

They are based on five relations: `span_parts`, `rollup_parts`, `tag_parts`, `shape_parts` and
`server_parts`, which have the parts' columns, and `host` and `host_id` of each part. `qjoule`
defines these from checked parts; `direct` defines them from the files without checks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from qjoule.api.rollups import (
    HELPERS,
    HOURLY,
    HOURS,
    ROLLUPS,
    ROWS,
    SLOW_COLUMNS,
    TAG_ROWS,
    TAGS,
    WAITS,
)

Dialect = Literal["duckdb", "spark"]
#: Each view depends only on earlier ones.
VIEWS = (
    *("spans", "minutes", "hours", "queries", "owners", "nodes"),
    *("shapes", "servers", "tags"),
)
#: The tables' columns without the host's.
PART_COLUMNS = {
    "span_parts": tuple(name for name in ROWS.names if name != "host_id"),
    "rollup_parts": tuple(name for name in ROWS.names if name != "host_id"),
    "tag_parts": tuple(name for name in TAG_ROWS.names if name != "host_id"),
    **{
        f"{table[:-1]}_parts": (*key, *others, "valid_from", "valid_to")
        for table, (key, others) in SLOW_COLUMNS.items()
    },
}


@cache
def view(name: str) -> str:
    """Returns the SELECT statement of a view, with its comment."""
    return (Path(__file__).parent / "views" / f"{name}.sql").read_text(encoding="utf-8").strip()


def definitions() -> list[str]:
    """Returns DuckDB statements that define all views."""
    return [f"create or replace view {name} as\n{view(name)}" for name in VIEWS]


def direct(root: str, dialect: Dialect, tables: Collection[str]) -> list[str]:
    """Returns statements that define everything from a dataset's files, without qjoule's checks.

    `tables`: the existing ones. `spans` has every hour: its sums if they exist, else its minutes.
    """
    source = {table: _files(root, table, dialect) for table in tables}
    setup = ["set TimeZone = 'UTC'"] if dialect == "duckdb" else []
    if dialect == "spark":
        setup = ["set spark.sql.session.timeZone = UTC"]
        setup += [
            f"create or replace temporary view {table}_files using parquet\n"
            f"options (path {text(f'{root}/{table}')}, mergeSchema 'true')"
            for table in tables
        ]
    kind = "temporary view" if dialect == "spark" else "view"
    base = [
        f"create or replace {kind} {name} as\n{select}" for name, select in _base(source).items()
    ]
    on = {"tags": "tag_parts", "shapes": "shape_parts", "servers": "server_parts"}
    have = _base(source)
    wanted = [name for name in VIEWS if on.get(name, "span_parts") in have]
    return [
        *setup,
        *base,
        *(f"create or replace {kind} {name} as\n{view(name)}" for name in wanted),
    ]


def text(value: str) -> str:
    """A SQL literal of a text.

    >>> text("it's")
    "'it''s'"
    """
    return "'" + value.replace("'", "''") + "'"


def _files(root: str, table: str, dialect: Dialect) -> str:
    if dialect == "spark":
        return f"{table}_files"
    # Earlier schemas lack some columns.
    glob = text(f"{root}/{table}/**/*.parquet")
    files = f"read_parquet({glob}, hive_partitioning = true, union_by_name = true)"
    if table not in HOURLY:
        return files
    none = ", ".join(f"null::bigint as {name}" for name in (*WAITS, *HELPERS))
    return f"(select * from {files} union all by name select {none} where false)"


def _base(source: Mapping[str, str]) -> dict[str, str]:
    """`host` comes from the directory; a part of schema 1 has no host id and uses its name
    instead."""

    def select(name: str, table: str) -> str:
        columns = f"{', '.join(PART_COLUMNS[name])}, host, coalesce(host_id, host) as host_id"
        return f"select {columns} from {source[table]}"

    selects = {}
    if ROLLUPS in source:
        selects["span_parts"] = select("span_parts", ROLLUPS)
    if HOURS in source and ROLLUPS in source:
        selects["span_parts"] = (
            f"{select('span_parts', HOURS)}\nunion all\n{selects['span_parts']} r\n"
            f"where not exists (\n  select 1 from {source[HOURS]} h\n"
            "  where h.host = r.host and h.host_id = r.host_id\n"
            "    and h.minute = date_trunc('hour', r.minute)\n)"
        )
    elif HOURS in source:
        selects["span_parts"] = select("span_parts", HOURS)
    named = {"rollup_parts": ROLLUPS, "tag_parts": TAGS}
    named |= {f"{table[:-1]}_parts": table for table in SLOW_COLUMNS}
    return selects | {name: select(name, table) for name, table in named.items() if table in source}
