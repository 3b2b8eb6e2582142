# SPDX-License-Identifier: Apache-2.0
"""The client that is traced: runs the query pairs in interleaved rounds.

    MARIADB_PASSWORD=… python workload.py --port 3307 --size 100000 --seconds 40

The rounds are interleaved, so that other activity on the machine affects both forms of a pair
alike.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter

import pymysql

from qjoule_studies.twitter.data import Sizes
from qjoule_studies.twitter.sql_pairs import Pair, query_pairs

LEAST_ROUNDS = 2  #: so that each form is once the first of its pair


def main() -> int:
    options = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        connection = pymysql.connect(
            host="127.0.0.1",
            port=options.port,
            user=options.user,
            password=os.environ.get("MARIADB_PASSWORD", ""),
            database=options.database,
            autocommit=True,
        )
        with connection:
            run(connection, query_pairs(Sizes(options.size)), options.seconds)
    except KeyboardInterrupt:
        return 130
    except pymysql.Error as error:
        print(f"workload: the server is gone or refuses: {error}", file=sys.stderr)
        return 1
    return 0


def run(connection: pymysql.Connection, pairs: tuple[Pair, ...], seconds: float) -> None:
    """Runs rounds until the time is over; every round calls every form."""
    end = time.monotonic() + seconds
    calls: Counter[str] = Counter()
    rounds = 0
    with connection.cursor() as cursor:
        while rounds < LEAST_ROUNDS or time.monotonic() < end:
            for pair in pairs:
                _run_pair(cursor, pair, calls, forward=rounds % 2 == 0)
            rounds += 1


def _run_pair(
    cursor: pymysql.cursors.Cursor, pair: Pair, calls: Counter[str], *, forward: bool
) -> None:
    for form in pair.forms if forward else pair.forms[::-1]:
        for _ in range(form.calls_per_round):
            if pair.most_calls is not None and calls[form.sql] >= pair.most_calls:
                break
            cursor.execute(form.sql, pair.literals(calls[form.sql]))
            cursor.fetchall()
            calls[form.sql] += 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs the query pairs of the demo.")
    parser.add_argument("--port", type=int, required=True, help="of a MariaDB on 127.0.0.1")
    parser.add_argument("--user", required=True, help="$MARIADB_PASSWORD is the password")
    parser.add_argument("--database", required=True)
    parser.add_argument("--size", type=int, required=True, help="tweets that were loaded")
    parser.add_argument("--seconds", type=float, required=True, help="stop after this")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
