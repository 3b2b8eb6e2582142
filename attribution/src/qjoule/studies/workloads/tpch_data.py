# SPDX-License-Identifier: Apache-2.0
"""Data after TPC-H's schema, from a seed: pandas frames, a part of each table at a time.

Row counts, keys and value domains are those of the TPC Benchmark H specification, revision 3.0.1,
clauses 4.2.2 and 4.2.3, for the six tables that Q1, Q4, Q5 and Q12 read. It is not dbgen: the
random numbers differ, texts are words of a list, and `part` and `partsupp` are left out. What is
measured with it is therefore no TPC-H result.

Money is in cents and percentages in hundredths, as whole numbers, so that sums are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

Array = npt.NDArray[np.int64]

TABLES = ("region", "nation", "supplier", "customer", "orders", "lineitem")
#: Columns in cents, or in hundredths.
HUNDREDTHS = frozenset(
    [
        "s_acctbal",
        "c_acctbal",
        "o_totalprice",
        "l_quantity",
        "l_extendedprice",
        "l_discount",
        "l_tax",
    ]
)

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_NATIONS = (  # name and region, clause 4.2.3
    *(("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4)),
    *(("ETHIOPIA", 0), ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2)),
    *(("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0)),
    *(("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3)),
    *(("SAUDI ARABIA", 4), ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3)),
    ("UNITED STATES", 1),
)
_SEGMENTS = np.array(["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"])
_PRIORITIES = np.array(["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"])
_INSTRUCTIONS = np.array(["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"])
MODES = np.array(["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"])
_WORDS = re.findall(
    "[a-z]+",
    "about above account across after against along among asymptote bold braid carefully courts "
    "daring deposit dolphin dugout even excuse express final fluffy foxes furiously hockey idea "
    "instruction ironic packages pending platelet quickly quiet regular request ruthless sentiment "
    "silent sleep slyly special theodolite thinly unusual warhorse",
)

_START = np.datetime64("1992-01-01")
_CURRENT = np.datetime64("1995-06-17")
_LAST_ORDER = np.datetime64("1998-12-31") - np.timedelta64(151, "D")
_ORDERS_AT_ONCE = 50_000
_ORDERS_OF_LONG_TEXTS = 2_000  # whose line items have some ten MB of comments
_TEXT_POOL = 1 << 18


class TpchData:
    """The tables for one scale factor and seed.

    Args:
        scale_factor: 1 means 1,500,000 orders and about 6,000,000 line items. Any positive number:
            no table has fewer rows than one.
        seed: the same gives the same rows, whatever the machine.
        comment_bytes: length of each line item's comment; 0 for 10 to 43, as specified.
    """

    def __init__(self, scale_factor: float, seed: int, comment_bytes: int = 0) -> None:
        self._seed = seed
        self._comment_bytes = comment_bytes
        self.suppliers = max(1, round(10_000 * scale_factor))
        self.customers = max(1, round(150_000 * scale_factor))
        self.parts = max(1, round(200_000 * scale_factor))
        self.order_count = max(1, round(1_500_000 * scale_factor))
        words = np.random.default_rng([seed, 0]).choice(_WORDS, _TEXT_POOL // 7)
        self._pool = " ".join(words.tolist())

    def small_tables(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Region, nation, supplier and customer, each whole."""
        rng = np.random.default_rng([self._seed, 1])
        names = {"r_regionkey": range(5), "r_name": REGIONS}
        yield "region", pd.DataFrame({**names, "r_comment": self._texts(rng, 5, 31, 115)})
        yield (
            "nation",
            pd.DataFrame(
                {
                    "n_nationkey": range(25),
                    "n_name": [name for name, _ in _NATIONS],
                    "n_regionkey": [region for _, region in _NATIONS],
                    "n_comment": self._texts(rng, 25, 31, 114),
                }
            ),
        )
        yield "supplier", pd.DataFrame(self._partner(rng, "s", "Supplier", self.suppliers))
        customers = self._partner(rng, "c", "Customer", self.customers)
        segments = rng.choice(_SEGMENTS, self.customers)
        yield "customer", pd.DataFrame({**customers, "c_mktsegment": segments})

    def orders_and_lines(self) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
        """Orders and their line items, some ten thousand orders at a time."""
        at_once = _ORDERS_OF_LONG_TEXTS if self._comment_bytes else _ORDERS_AT_ONCE
        for part, first in enumerate(range(0, self.order_count, at_once)):
            rng = np.random.default_rng([self._seed, 2, part])
            count = min(at_once, self.order_count - first)
            yield self._part(rng, np.arange(first, first + count))

    def _part(self, rng: np.random.Generator, index: Array) -> tuple[pd.DataFrame, pd.DataFrame]:
        count = len(index)
        keys = index // 8 * 32 + index % 8 + 1  # the first 8 of each 32 keys (clause 4.2.3)
        days = int((_LAST_ORDER - _START).astype(int))
        dates = _START + rng.integers(0, days + 1, count)
        lines_each = rng.integers(1, 8, count)
        of_line = np.repeat(np.arange(count), lines_each)
        lines = self._lines(rng, keys[of_line], dates[of_line])
        first_lines = np.concatenate(([0], np.cumsum(lines_each)[:-1]))
        lines.insert(3, "l_linenumber", np.arange(len(of_line)) - first_lines[of_line] + 1)
        price = (  # of each line in cents, times (1 + tax) (1 - discount), to 1e-4 cents
            lines["l_extendedprice"].to_numpy()
            * (100 + lines["l_tax"].to_numpy())
            * (100 - lines["l_discount"].to_numpy())
        )
        total = np.add.reduceat(price, first_lines)
        is_open = np.add.reduceat(
            (lines["l_linestatus"] == "O").to_numpy().astype(int), first_lines
        )
        orders = pd.DataFrame(
            {
                "o_orderkey": keys,
                "o_custkey": self._customers_of_orders(rng, count),
                "o_orderstatus": np.where(
                    is_open == 0, "F", np.where(is_open == lines_each, "O", "P")
                ),
                "o_totalprice": (total + 5_000) // 10_000,
                "o_orderdate": dates,
                "o_orderpriority": rng.choice(_PRIORITIES, count),
                "o_clerk": _numbered(
                    "Clerk", rng.integers(1, max(2, self.parts // 200 + 1), count)
                ),
                "o_shippriority": np.zeros(count, np.int64),
                "o_comment": self._texts(rng, count, 19, 78),
            }
        )
        return orders, lines

    def _lines(
        self, rng: np.random.Generator, keys: Array, ordered: npt.NDArray[np.datetime64]
    ) -> pd.DataFrame:
        count, suppliers = len(keys), self.suppliers
        parts = rng.integers(1, self.parts + 1, count)
        which = rng.integers(0, 4, count)
        quantity = rng.integers(1, 51, count)
        retail = 90_000 + parts // 10 % 20_001 + 100 * (parts % 1_000)  # cents
        shipped = ordered + rng.integers(1, 122, count)
        received = shipped + rng.integers(1, 31, count)
        returned = np.where(rng.integers(0, 2, count), "R", "A")
        low, high = (self._comment_bytes,) * 2 if self._comment_bytes else (10, 43)
        return pd.DataFrame(
            {
                "l_orderkey": keys,
                "l_partkey": parts,
                "l_suppkey": (parts + which * (suppliers // 4 + (parts - 1) // suppliers))
                % suppliers
                + 1,
                "l_quantity": quantity * 100,
                "l_extendedprice": quantity * retail,
                "l_discount": rng.integers(0, 11, count),
                "l_tax": rng.integers(0, 9, count),
                "l_returnflag": np.where(received <= _CURRENT, returned, "N"),
                "l_linestatus": np.where(shipped > _CURRENT, "O", "F"),
                "l_shipdate": shipped,
                "l_commitdate": ordered + rng.integers(30, 91, count),
                "l_receiptdate": received,
                "l_shipinstruct": rng.choice(_INSTRUCTIONS, count),
                "l_shipmode": rng.choice(MODES, count),
                "l_comment": self._texts(rng, count, low, high),
            }
        )

    def _partner(
        self, rng: np.random.Generator, initial: str, kind: str, count: int
    ) -> dict[str, object]:
        nations = rng.integers(0, 25, count)
        digits = rng.integers([100, 100, 1_000], [1_000, 1_000, 10_000], (count, 3))
        phones = [
            f"{10 + nation}-{a}-{b}-{c}"
            for nation, (a, b, c) in zip(nations.tolist(), digits.tolist(), strict=True)
        ]
        key = "suppkey" if initial == "s" else "custkey"
        return {
            f"{initial}_{key}": np.arange(1, count + 1),
            f"{initial}_name": _numbered(kind, np.arange(1, count + 1)),
            f"{initial}_address": self._texts(rng, count, 10, 40),
            f"{initial}_nationkey": nations,
            f"{initial}_phone": phones,
            f"{initial}_acctbal": rng.integers(-99_999, 1_000_000, count),
            f"{initial}_comment": self._texts(rng, count, 29, 100),
        }

    def _customers_of_orders(self, rng: np.random.Generator, count: int) -> Array:
        """A third of the customers have no order: those whose key is a multiple of 3."""
        with_orders = self.customers - self.customers // 3
        place = rng.integers(0, with_orders, count)
        return place // 2 * 3 + place % 2 + 1

    def _texts(self, rng: np.random.Generator, count: int, low: int, high: int) -> list[str]:
        lengths = rng.integers(low, high + 1, count)
        begins = rng.integers(0, len(self._pool) - high, count)
        pool = self._pool
        return [
            pool[begin:end]
            for begin, end in zip(begins.tolist(), (begins + lengths).tolist(), strict=True)
        ]


def _numbered(kind: str, numbers: Array) -> list[str]:
    return [f"{kind}#{number:09}" for number in numbers.tolist()]
