# SPDX-License-Identifier: Apache-2.0
"""A small web shop (plain WSGI and PyMySQL) and its visitors: the one program that is measured.

Only `WSGIMiddleware` belongs to qjoule; the shop works the same without it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pymysql

from qjoule_drivers import WSGIMiddleware

ORDERS = 20_000
#: Nine of ten visits look at an order; the tenth lists everything a customer bought.
PATHS = (*(f"/orders/{n}" for n in range(1, 10)), "/customers/7/total")
ROUTES = {
    "/orders/{id}": "SELECT customer, cents FROM orders WHERE id = %s",
    "/customers/{id}/total": "SELECT COUNT(*), SUM(cents) FROM orders WHERE customer = %s",
}
_PATTERNS = {route: re.compile(route.replace("{id}", "([0-9]+)")) for route in ROUTES}


def route_of(environ: dict[str, str]) -> str | None:
    """The template of a request's path. Templates have few values; paths have many."""
    path = environ["PATH_INFO"]
    return next((route for route, pattern in _PATTERNS.items() if pattern.fullmatch(path)), None)


class Shop:
    """The WSGI application; its one connection is used by one request at a time."""

    def __init__(self, connection: pymysql.Connection) -> None:
        self._connection = connection

    def __call__(
        self, environ: dict[str, str], start_response: Callable[..., object]
    ) -> Iterable[bytes]:
        route = route_of(environ)
        if route is None:
            start_response("404 Not Found", [("Content-Type", "application/json")])
            return [b"null"]
        match = _PATTERNS[route].fullmatch(environ["PATH_INFO"])
        with self._connection.cursor() as cursor:
            cursor.execute(ROUTES[route], [int(match[1]) if match else 0])
            row = cursor.fetchone()
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(row, default=str).encode()]


class Quiet(WSGIRequestHandler):
    """Does not log requests."""

    def log_message(self, *_: object) -> None:
        pass


def fill(connection: pymysql.Connection) -> None:
    """Creates a table of orders that lacks an index on customers, as is common."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id INT PRIMARY KEY, customer INT, cents INT)")
        rows = ((n, n % 100, n * 37 % 10_000) for n in range(ORDERS))
        cursor.executemany("INSERT INTO orders VALUES (%s, %s, %s)", rows)
    connection.commit()


def visit(port: int, seconds: float) -> int:
    """Sends requests one after another; returns their number. Raises RuntimeError if one fails."""
    end = time.monotonic() + seconds
    visits = 0
    while time.monotonic() < end:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        client.request("GET", PATHS[visits % len(PATHS)])
        if client.getresponse().status != 200:
            raise RuntimeError(f"the shop does not answer {PATHS[visits % len(PATHS)]}")
        client.close()
        visits += 1
    return visits


def main() -> None:
    parser = argparse.ArgumentParser(description="A shop and its visitors.")
    for name in ("port", "user", "database"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    connection = pymysql.connect(
        host="127.0.0.1",
        port=int(options.port),
        user=options.user,
        password=os.environ["MARIADB_PASSWORD"],
        database=options.database,
    )
    fill(connection)
    application = WSGIMiddleware(Shop(connection), route=route_of)
    with make_server("127.0.0.1", 0, application, handler_class=Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"{visit(server.server_port, options.seconds)} visits", flush=True)
        server.shutdown()


if __name__ == "__main__":
    main()
