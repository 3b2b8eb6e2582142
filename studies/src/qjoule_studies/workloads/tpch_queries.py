# SPDX-License-Identifier: Apache-2.0
"""TPC-H's Q1, Q4, Q5 and Q12 as statements for PostgreSQL, MySQL and MariaDB.

After the TPC Benchmark H specification, revision 3.0.1, clauses 2.4.1, 2.4.4, 2.4.5 and 2.4.12:
what they ask, their substitution parameters and their validation values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date

import numpy as np

from qjoule.api import UsageError

_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
QUERIES = ("Q1", "Q4", "Q5", "Q12")


@dataclass(frozen=True)
class Parameters:
    """Substitution parameters of one execution; by default the validation values."""

    q1_delta_days: int = 90
    q4_date: date = date(1993, 7, 1)
    q5_region: str = "ASIA"
    q5_date: date = date(1994, 1, 1)
    q12_modes: tuple[str, str] = ("MAIL", "SHIP")
    q12_date: date = date(1994, 1, 1)

    def of(self, query: str) -> Parameters:
        """One query's parameters. All others are the defaults: equal executions are equal."""
        prefix = f"{query.lower()}_"
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name.startswith(prefix)}
        return replace(Parameters(), **own)


def random_parameters(seed: int, number: int) -> Parameters:
    """Random parameters of the execution of this number, from the specification's domains."""
    rng = np.random.default_rng([seed, number])
    month = int(rng.integers(0, 58))  # 1993-01 to 1997-10
    first, second = rng.permutation(len(_MODES))[:2]
    return Parameters(
        q1_delta_days=int(rng.integers(60, 121)),
        q4_date=date(1993 + month // 12, month % 12 + 1, 1),
        q5_region=_REGIONS[rng.integers(0, len(_REGIONS))],
        q5_date=date(int(rng.integers(1993, 1998)), 1, 1),
        q12_modes=(_MODES[first], _MODES[second]),
        q12_date=date(int(rng.integers(1993, 1998)), 1, 1),
    )


_Q1 = """
SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty,
       sum(l_extendedprice) AS sum_base_price,
       sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
       sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
       avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price,
       avg(l_discount) AS avg_disc, count(*) AS count_order
FROM {s}lineitem
WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '{delta}' DAY
GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus"""

_Q4 = """
SELECT o_orderpriority, count(*) AS order_count FROM {s}orders
WHERE o_orderdate >= DATE '{begin}' AND o_orderdate < DATE '{begin}' + INTERVAL '3' MONTH
  AND EXISTS (SELECT * FROM {s}lineitem
              WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority"""

_Q5 = """
SELECT {hint}n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM {joins}
WHERE {conditions}r_name = '{region}'
  AND o_orderdate >= DATE '{begin}' AND o_orderdate < DATE '{begin}' + INTERVAL '1' YEAR
GROUP BY n_name ORDER BY revenue DESC"""

_Q12 = """
SELECT l_shipmode,
       sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END)
           AS high_line_count,
       sum(CASE WHEN o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END)
           AS low_line_count
FROM {s}orders, {s}lineitem
WHERE o_orderkey = l_orderkey AND l_shipmode IN ('{modes[0]}', '{modes[1]}')
  AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
  AND l_receiptdate >= DATE '{begin}' AND l_receiptdate < DATE '{begin}' + INTERVAL '1' YEAR
GROUP BY l_shipmode ORDER BY l_shipmode"""

_Q5_TABLES = ("customer", "orders", "lineitem", "supplier", "nation", "region")
_Q5_JOINS: Mapping[tuple[str, str], str] = {
    ("customer", "orders"): "c_custkey = o_custkey",
    ("lineitem", "orders"): "l_orderkey = o_orderkey",
    ("lineitem", "supplier"): "l_suppkey = s_suppkey",
    ("customer", "supplier"): "c_nationkey = s_nationkey",
    ("supplier", "nation"): "s_nationkey = n_nationkey",
    ("nation", "region"): "n_regionkey = r_regionkey",
}
#: Follows from two others, and lets customers be joined to nations before suppliers are.
_Q5_IMPLIED = {("customer", "nation"): "c_nationkey = n_nationkey"}


def statement(
    query: str,
    parameters: Parameters,
    schema: str = "",
    join_order: Sequence[str] = (),
    straight: bool = False,
) -> str:
    """A query's text.

    Args:
        schema: before each table's name; empty for the session's own.
        join_order: of Q5's six tables; empty leaves it to the planner.
        straight: write a join order as MySQL's STRAIGHT_JOIN. PostgreSQL follows the order of
            explicit joins where `join_collapse_limit` is 1.
    """
    s = f"{schema}." if schema else ""
    if query == "Q1":
        return _Q1.format(s=s, delta=parameters.q1_delta_days)
    if query == "Q4":
        return _Q4.format(s=s, begin=parameters.q4_date)
    if query == "Q12":
        return _Q12.format(s=s, modes=parameters.q12_modes, begin=parameters.q12_date)
    conditions = ""
    if join_order:
        joins = _joined(join_order, s)
    else:
        joins = ", ".join(f"{s}{table}" for table in _Q5_TABLES)
        conditions = " AND ".join(_Q5_JOINS.values()) + " AND "
    return _Q5.format(
        joins=joins,
        conditions=conditions,
        hint="STRAIGHT_JOIN " if straight and join_order else "",
        region=parameters.q5_region,
        begin=parameters.q5_date,
    )


def parse_join_order(text: str) -> tuple[str, ...]:
    """`region,nation,...` as a tuple; empty for `planner`.

    Raises:
        UsageError: it is not each of Q5's tables once, or a table has no condition with those
            before it, which would multiply them.
    """
    if text == "planner":
        return ()
    order = tuple(part.strip() for part in text.split(","))
    if sorted(order) != sorted(_Q5_TABLES):
        raise UsageError(
            f"join_order is {text[:80]!r}: write 'planner', or each once: {','.join(_Q5_TABLES)}"
        )
    for place, table in enumerate(order[1:], 1):
        if not _conditions(order[:place], table):
            raise UsageError(f"join_order: {table} has no condition with a table before it")
    return order


def _joined(order: Sequence[str], s: str) -> str:
    joined = f"{s}{order[0]}"
    for place, table in enumerate(order[1:], 1):
        joined += f" JOIN {s}{table} ON {' AND '.join(_conditions(order[:place], table))}"
    return joined


def _conditions(before: Sequence[str], table: str) -> list[str]:
    """Q5's conditions between a table and those before it; an implied one only if it is needed."""
    own, implied = (
        [
            text
            for pair, text in conditions.items()
            if table in pair and {*pair} - {table} <= {*before}
        ]
        for conditions in (_Q5_JOINS, _Q5_IMPLIED)
    )
    return own or implied
