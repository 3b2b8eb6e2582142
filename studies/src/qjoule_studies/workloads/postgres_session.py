# SPDX-License-Identifier: Apache-2.0
"""Sessions of PostgreSQL with settings, their plans, and what is kept of them between processes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from qjoule.api import UsageError
from qjoule_studies.workload import Target, Value
from qjoule_studies.workloads.plan_check import Plan, describe, launched, spilled_kb
from qjoule_studies.workloads.sql_session import connect, driver, one_line, said_by_server

_KEPT = "qjoule_kept.findings"


def session(target: Target, settings: Mapping[str, str]) -> Any:
    """A connection with these settings. Raises UsageError if the server has no such setting.

    Planner settings (`enable_...`) that an older server lacks are left out: it does not have the
    feature that they switch off.
    """
    connection = connect(target)
    with said_by_server(target):
        known = {name for (name,) in connection.execute("SELECT name FROM pg_settings")}
    for name, value in settings.items():
        if name not in known and name.startswith("enable_"):
            continue
        try:
            connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        except driver(target.flavour).Error as error:
            connection.close()
            raise UsageError(f"setting {name}: {one_line(error)}") from error
    return connection


def explain(connection: Any, statement: str) -> Plan:
    """The plan of a statement, which is not executed."""
    return _plan(connection.execute(f"EXPLAIN (FORMAT JSON) {statement}"))


def analyze(connection: Any, statement: str) -> Plan:
    """The plan of a statement with what happened when it was executed."""
    return _plan(connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"))


def findings(plan: Plan) -> str:
    """For a run's notes: the plan, its workers and its temporary files, of `analyze`."""
    planned, started = launched(plan)
    said = f"plan: {describe(plan)}; {started} of {planned} workers launched"
    if started < planned:
        said += " (the server's max_worker_processes or max_parallel_workers allow no more)"
    spilled = spilled_kb(plan)
    return said + (f"; {spilled:,} kB of temporary files written" if spilled else "")


def scarce_workers(connection: Any, workers: int, connections: int) -> str:
    """A note if the server cannot run all workers of all connections at once; else empty."""
    row = connection.execute(
        "SELECT least(current_setting('max_parallel_workers')::int, "
        "current_setting('max_worker_processes')::int)"
    ).fetchone()
    if workers * connections <= row[0]:
        return ""
    return (
        f"{connections} connections of {workers} workers each share the server's {row[0]}: "
        "not all run at all times"
    )


def keep(connection: Any, key: str, found: object) -> None:
    """Keeps a finding in the database, for the process that does the run."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS qjoule_kept")
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {_KEPT} (key text PRIMARY KEY, found text NOT NULL)"
    )
    connection.execute(
        f"INSERT INTO {_KEPT} VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET found = %s",
        [key, *[json.dumps(found)] * 2],
    )


def kept(connection: Any, key: str) -> Any:
    """What was kept under this key, or None."""
    if connection.execute("SELECT to_regclass(%s)", [_KEPT]).fetchone()[0] is None:
        return None
    row = connection.execute(f"SELECT found FROM {_KEPT} WHERE key = %s", [key]).fetchone()
    return None if row is None else json.loads(row[0])


def key_of(workload: str, options: Mapping[str, Value]) -> str:
    """The same for equal options of a workload."""
    told = json.dumps([workload, sorted(options.items())])
    return f"{workload}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def _plan(cursor: Any) -> Plan:
    plan: Plan = cursor.fetchone()[0][0]["Plan"]
    return plan
