# SPDX-License-Identifier: Apache-2.0
"""Workloads of studies on real servers, which `qjoule_studies.servers` starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from qjoule.errors import QjouleError
from qjoule_studies.servers import start
from qjoule_studies.servers.mysql import connect_target
from qjoule_studies.twitter import FORMS, Rows, open_server
from qjoule_studies.twitter.data import Sizes
from qjoule_studies.workload import Target, Value
from qjoule_studies.workloads.twitter import Twitter
from qjoule_studies.workloads.ycsb import Ycsb
from servers.databases import or_skip

pytestmark = [pytest.mark.beside, pytest.mark.server]

SETTINGS: dict[str, dict[str, Value]] = {
    "mariadb": {"innodb_buffer_pool_size": "48M"},
    "mysql": {"innodb_buffer_pool_size": "48M"},
    "postgres": {"work_mem": "7MB", "jit": False},
    "redis": {"maxmemory": "123mb"},
    "cassandra": {"row_cache_size": "16MiB"},
}
SERVERS = ("mariadb", "mysql", "postgres", "redis", "mongodb", "cassandra", "voltdb")
RECORDS, OPERATIONS = 150, 120
#: FerretDB scans all documents for each query; the number does not matter for other servers.
FEW = {"mongodb": 24}


@pytest.fixture(scope="module", params=SERVERS)
def target(
    request: pytest.FixtureRequest,
    no_server_is_left: None,  # noqa: ARG001
) -> Iterator[Target]:
    name = request.param
    with or_skip(), start(name, SETTINGS.get(name, {})) as server:
        yield server


def ycsb_options(target: Target, **changed: Value) -> dict[str, Value]:
    operations = FEW.get(target.flavour, OPERATIONS)
    few: dict[str, Value] = {"record_count": RECORDS, "operations": operations}
    # SQLite allows one writer at a time, and FerretDB fails those that have waited too long.
    few["threads"] = 1 if target.flavour == "mongodb" else 4
    return {**Ycsb.defaults, **few, **changed}


def test_no_server_runs_as_root(target: Target) -> None:
    if os.geteuid() == 0:
        assert psutil.Process(target.pid).uids().real != 0
    assert target.password not in psutil.Process(target.pid).cmdline() or not target.password


@pytest.mark.parametrize("workload", ["B", "insert", "E"])
def test_ycsb(target: Target, workload: str) -> None:
    options = ycsb_options(target, workload=workload)
    work = Ycsb()
    try:
        work.prepare(target, options)
    except QjouleError as reason:
        if "not installed" in str(reason) or "go-ycsb has no" in str(reason):
            pytest.skip(str(reason))
        assert "cannot scan" in str(reason)
        assert workload == "E"
        return
    for _ in range(2):
        done = work.run(target, options)
        assert done.operations + done.errors == options["operations"]
        # It also asks for one record past the last, which MongoDB's driver treats as an error.
        assert done.errors == 0 or (target.flavour == "mongodb" and done.errors < 10)
        work.prepare(target, options)  # removes what it has inserted, which would be there twice


def twitter_options(pair: str, form: str) -> dict[str, Value]:
    few: dict[str, Value] = {"rows": 1_000, "operations": 2}
    return {**Twitter.defaults, **few, "pair": pair, "form": form}


def test_both_forms_of_a_pair_give_the_same(target: Target) -> None:
    if target.flavour == "voltdb":
        pytest.skip("VoltDB has no pairs")
    server = open_server(target, Sizes(1_000))
    try:
        for name, pair in server.pairs.items():
            rows: list[list[Rows]] = []
            for form in FORMS:
                options = twitter_options(name, form)
                Twitter().prepare(target, options)
                done = Twitter().run(target, options)
                assert (done.operations, done.errors) == (2, 0), (name, form, done)
                Twitter().prepare(target, options)  # also restores what was deleted or inserted
                server.open(name, form, 1)
                rows.append([sorted(map(comparable, server.call(number))) for number in (0, 1)])
            worse, better = rows
            assert [len(rows_of_call) for rows_of_call in worse] == [
                len(rows_of_call) for rows_of_call in better
            ], name
            if pair.same_rows:
                assert worse == better, name
    finally:
        server.close()


def comparable(row: Any) -> str:
    """A row as text, whatever kind of sequence the driver returned."""
    if isinstance(row, dict):
        return repr(sorted(row.items()))
    return repr(tuple(row)) if isinstance(row, (list, tuple)) else repr(row)


def test_somebody_s_tables_are_not_dropped(target: Target) -> None:
    if target.flavour != "mariadb":
        pytest.skip("one server is enough")
    with connect_target(target, "ycsb").cursor() as cursor:
        cursor.execute("CREATE DATABASE `their``s`")
        cursor.execute("CREATE TABLE `their``s`.users (id INT)")
        theirs = replace(target, database="their`s")
        with pytest.raises(QjouleError, match="table users that qjoule did not make"):
            Twitter().prepare(theirs, twitter_options("count", "worse"))
        cursor.execute("SELECT COUNT(*) FROM `their``s`.users")
        assert cursor.fetchone() == (0,)


def test_a_setting_that_the_server_refuses_is_an_error_that_quotes_it() -> None:
    before = set(Path("/tmp").glob("qjoule-server-*"))
    for name, setting in (("redis", "no-such-directive"), ("postgres", "no_such_parameter")):
        with pytest.raises(QjouleError, match=setting), start(name, {setting: 1}):
            pytest.fail("it was started")
    assert set(Path("/tmp").glob("qjoule-server-*")) <= before
