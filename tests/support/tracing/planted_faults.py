# SPDX-License-Identifier: Apache-2.0
"""Loads of a real server with one fault that wastes energy, and the same loads without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from qjoule_studies.servers.process import DatabaseServer

ROWS = 60_000  #: of the large table
LOOPS = 600  #: of the N+1, of 20 rows each
POLL_S, POLLS = 0.01, 200
#: Rows with a column `seq` that counts from 1 to a number.
_SERIES = {
    "postgres": "generate_series(1, {0}) seq",
    "mariadb": "seq_1_to_{0}",
    "mysql": "(with recursive counted as (select 1 seq union all select seq + 1 from counted "
    "where seq < {0}) select seq from counted) series",
}
HOLD_S = 0.05  #: a transaction holds its lock for so long
WRITERS = 4


class Faults:
    """Each method is a load of the table's rows that lasts a second or so. Statements of PostgreSQL
    are prepared, as drivers do."""

    def __init__(self, server: DatabaseServer) -> None:
        self.server = server
        self.is_postgres = server.name == "postgres"

    def tables(self) -> None:
        """Orders with an index on their customer, and wide documents."""
        series = _SERIES[self.server.name]
        rows = series.format(ROWS)
        if not self.is_postgres:
            with closing(self.server.connect()) as connection:
                connection.cursor().execute("create database if not exists shop")
        self._execute(
            *(["set cte_max_recursion_depth = 1000000"] if self.server.name == "mysql" else []),
            "drop table if exists orders",
            "drop table if exists bare_orders",
            "drop table if exists documents",
            "create table orders (id int primary key, customer int, price int, word varchar(40))",
            f"insert into orders select seq, mod(seq, 3000), mod(seq * 7, 1000), "
            f"concat('w', mod(seq * 7919, 100003)) from {rows}",
            "create table bare_orders as select * from orders",
            "create index of_customer on orders (customer)",
            "create table documents (id int primary key, owner int, title varchar(40), "
            + ", ".join(f"c{n} varchar(200)" for n in range(30))
            + ")",
            "insert into documents select seq, mod(seq, 20), 'title', "
            + ", ".join("repeat('x', 120)" for _ in range(30))
            + f" from {series.format(4000)}",
            "analyze orders" if self.is_postgres else "analyze table orders, documents",
        )

    def clean(self) -> None:
        """The work of all faults, done as it should be."""
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            for n in range(3000):  # parsing is a seventh of these, near the fifth that is advised
                self._ask(cursor, "select price, word from orders where id = %s", n * 37 % ROWS + 1)
                self._ask(cursor, "select price from orders where customer = %s", n)
                self._ask(cursor, "select * from orders where id = %s", n * 41 % ROWS + 1)
                text = "select id, price from orders where customer = %s order by price"
                self._ask(cursor, text, n)
                if n % 10 == 0:
                    self._ask(cursor, "update orders set price = price + 1 where id = %s", n + 1)
                    connection.commit()

    def missing_index(self) -> None:
        self._beside("select price from bare_orders where customer = %s", range(100))

    def spilled_sort(self) -> None:
        small = "work_mem = '64kB'" if self.is_postgres else "sort_buffer_size = 32768"
        text = "select id, word from orders where price >= %s order by word limit 20000"
        self._beside(text, [0] * 15, f"set {small}")

    def all_columns(self) -> None:
        text = "select * from documents where id > %s order by id limit 200"
        self._beside(text, list(range(0, 3800, 200)) * 8)

    def n_plus_one(self) -> None:
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            for customer in range(LOOPS):
                text = "select id from orders where customer = %s limit 20"
                for (key,) in self._ask(cursor, text, customer):
                    self._ask(cursor, "select word from orders where id = %s", key)
            connection.commit()

    def texts_parsed(self) -> None:
        """A long statement for one row, which is sent as text each time."""
        terms = "".join(f" + {n}" for n in range(300))
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            for n in range(3000):
                text = f"select id{terms} from orders where id = {n}"
                cursor.execute(text, **({"prepare": False} if self.is_postgres else {}))
                cursor.fetchall()

    def many_workers(self) -> None:
        """Four workers for a table that one process reads in some milliseconds. PostgreSQL only."""
        costs = ("parallel_setup_cost", "parallel_tuple_cost", "min_parallel_table_scan_size")
        settings = [f"set {name} = 0" for name in costs]
        text = "select count(word) from orders where price < %s"
        self._beside(text, [500] * 60, *settings, "set max_parallel_workers_per_gather = 4")

    def lock_convoy(self) -> None:
        """Writers of one row, each of which holds it for a while."""
        threads = [threading.Thread(target=self._hold) for _ in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _hold(self) -> None:
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            for n in range(6):
                cursor.execute("begin")
                self._ask(cursor, "update orders set price = %s where id = 1", n)
                time.sleep(HOLD_S)
                cursor.execute("commit")

    def polling(self) -> None:
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            for _ in range(POLLS):
                self._ask(cursor, "select id from orders where customer = %s", -1)
                connection.commit()
                time.sleep(POLL_S)

    def _beside(self, text: str, keys: Any, *settings: str) -> None:
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            for setting in settings:
                cursor.execute(setting)
            for key in keys:
                self._ask(cursor, text, key)

    def _ask(self, cursor: Any, text: str, key: int) -> list[Any]:
        if self.is_postgres:
            cursor.execute(text, (key,), prepare=True)
        else:
            cursor.execute(text, (key,))
        return list(cursor.fetchall()) if text.startswith("select") else []

    def _connect(self) -> Any:
        return self.server.connect() if self.is_postgres else self.server.connect(database="shop")

    def _execute(self, *texts: str) -> None:
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            for text in texts:
                cursor.execute(text)
            connection.commit()


FAULTS: dict[str, Callable[[Faults], None]] = {
    "scan": Faults.missing_index,
    "spill": Faults.spilled_sort,
    "width": Faults.all_columns,
    "parsing": Faults.texts_parsed,
    "n+1": Faults.n_plus_one,
    "lock": Faults.lock_convoy,
    "polling": Faults.polling,
    "parallel": Faults.many_workers,
}
