# SPDX-License-Identifier: Apache-2.0
"""go-ycsb, the client of YCSB: how it is called, and what it prints.

YCSB is Cooper et al., Benchmarking Cloud Serving Systems with YCSB, SoCC 2010. The module of each
server in `stores` has its `YCSB`, a `Driver`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qjoule.api import QjouleError
from qjoule_studies.servers import STORES, module_for, products_in
from qjoule_studies.servers.prerequisites import Unavailable, fetched
from qjoule_studies.workload import Latencies, Outcome, Target

if TYPE_CHECKING:
    from qjoule_studies.workloads.ycsb import Settings

#: Servers that it has a driver for: those with a module here.
FLAVOURS = frozenset(products_in(STORES))
TABLE = "qjoule_ycsb"  #: ours by its name: it is removed before records are loaded
DATABASE = "ycsb"  #: unless the target names one; go-ycsb knows no other with MongoDB
LONGEST_SCAN = 100
_PROGRAM = "go-ycsb"
_VERSION = re.compile(r"go-ycsb-v([0-9.]+)")
#: Its last report: `READ   - Takes(s): 1.0, Count: 507, OPS: 512.3, Avg(us): 91, ...`.
_LINE = re.compile(r"^(\w+) *- Takes\(s\): ")
_FIGURE = re.compile(r"([A-Za-z0-9.]+)\((?:us|s)\): ([0-9.]+)|(Count): (\d+)")
_COMMANDS = {
    "READ": "read",
    "UPDATE": "update",
    "INSERT": "insert",
    "SCAN": "scan",
    "READ_MODIFY_WRITE": "read-modify-write",
}
_SHARES = {
    "read": "readproportion",
    "update": "updateproportion",
    "insert": "insertproportion",
    "scan": "scanproportion",
    "read-modify-write": "readmodifywriteproportion",
}
_PROPERTY = re.compile(r'^"[^"\n]+"=".*\n?', re.MULTILINE)
_FINISHED = re.compile(r"^Run finished, takes ([0-9.hmsµu]+)$", re.MULTILINE)
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6}


@dataclass(frozen=True)
class Driver:
    """A driver of go-ycsb's, and what it lacks: an empty place for the records.

    `empty` and `loaded` raise one of `errors`, or OSError.
    """

    name: str  #: as its command line has it
    properties: Callable[[Target, int], Mapping[str, object]]  #: by target and number of threads
    empty: Callable[[Target], None]  #: makes the database; removes the table, if there is one
    errors: tuple[type[Exception], ...]
    loaded: Callable[[Target], None] | None = None  #: what the server does once records are there
    scans: bool = True  #: False: it answers "scan is not supported"
    databases: frozenset[str] = frozenset()  #: the only ones that it can use; empty: any
    other_database: str = ""  #: why it cannot use another one


def installed() -> Path:
    """The program, on PATH or as `make servers SERVERS=go-ycsb` brings it.

    Raises:
        QjouleError: it is not there.
    """
    path = shutil.which(_PROGRAM)
    if path:
        return Path(path)
    try:
        return fetched(_PROGRAM, _PROGRAM) / _PROGRAM
    except Unavailable:
        raise QjouleError('go-ycsb is not installed: make servers SERVERS="go-ycsb"') from None


def version(program: Path) -> str:
    """`go-ycsb 1.0.1`; without a number if the program does not print it."""
    match = _VERSION.search(program.parent.name)
    return f"{_PROGRAM} {match[1]}" if match else _PROGRAM


def refusal(target: Target, wanted: Settings) -> str:
    """Why go-ycsb cannot do this; empty if it can."""
    if target.flavour not in FLAVOURS:
        return f"go-ycsb has no driver for {target.flavour!r:.50}"
    driver = _driver(target.flavour)
    if "scan" in wanted.mix.shares and not driver.scans:
        return f"go-ycsb cannot scan {target.flavour}"
    if target.database and driver.databases and target.database not in driver.databases:
        return driver.other_database
    return ""


def load(target: Target, wanted: Settings) -> None:
    """Exactly the wanted records, in place of what an earlier run has left.

    Raises:
        QjouleError: go-ycsb is missing, or the server does not answer or take them.
    """
    program, driver = installed(), _driver(target.flavour)
    refusals: tuple[type[Exception], ...] = (*driver.errors, OSError)
    few = replace(wanted, threads=min(wanted.threads, wanted.record_count))
    try:
        driver.empty(target)
        text = _output(program, "load", target, few)
        done = read_output(text, _PROGRAM)
        if done.errors or done.operations != wanted.record_count:
            raise QjouleError(f"go-ycsb cannot load its records: {_end(text)}")
        if driver.loaded is not None:
            driver.loaded(target)
    except refusals as error:
        raise QjouleError(
            f"{target.flavour} at {target.host}:{target.port} does not answer, or refuses YCSB's "
            f"table: {error}"
        ) from error


def run(target: Target, wanted: Settings) -> Outcome:
    """Runs the workload on the records that are there.

    Raises:
        QjouleError: go-ycsb is missing or fails, with the end of its output.
    """
    program = installed()
    return read_output(_output(program, "run", target, wanted), version(program))


def _output(program: Path, command: str, target: Target, wanted: Settings) -> str:
    with tempfile.TemporaryDirectory(prefix="qjoule-ycsb-") as directory:
        file = Path(directory) / "properties"  # a command line is for everybody to read
        file.touch(0o600)
        file.write_text("".join(f"{k}={v}\n" for k, v in properties(target, wanted).items()))
        argv = [str(program), command, _driver(target.flavour).name, "-P", str(file)]
        argv += ["--threads", str(wanted.threads), "--interval", "3600"]
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", check=False, cwd=directory
        )
    if done.returncode:
        raise QjouleError(f"go-ycsb failed: {_end(done.stderr or done.stdout)}")
    return done.stdout


def _end(text: str) -> str:
    """The end of its output, without the properties that it prints: a password is one."""
    return _PROPERTY.sub("", text).strip()[-500:]


def properties(target: Target, wanted: Settings) -> Mapping[str, object]:
    """go-ycsb's properties of the workload, the records and the server."""
    shares = {name: wanted.mix.shares.get(command, 0) for command, name in _SHARES.items()}
    return {
        "workload": "core",
        "table": TABLE,
        "recordcount": wanted.record_count,
        "operationcount": wanted.operations,
        "fieldcount": wanted.fields,
        "fieldlength": wanted.field_bytes,
        "threadcount": wanted.threads,
        "requestdistribution": wanted.distribution,
        "maxscanlength": LONGEST_SCAN,
        "scanlengthdistribution": "uniform",
        "readallfields": "true",
        "writeallfields": "false",
        "debug.pprof": "127.0.0.1:0",  # it would listen on a port that everybody knows
        **shares,
        **_driver(target.flavour).properties(target, wanted.threads),
    }


def _driver(product: str) -> Driver:
    try:
        driver: Driver = module_for(STORES, product).YCSB
    except ModuleNotFoundError as error:
        raise QjouleError(
            f"{error.name} is missing: pip install 'qjoule-studies[bench]'"
        ) from error
    return driver


def read_output(text: str, client: str) -> Outcome:
    """What a run printed, as an outcome.

    Raises:
        QjouleError: it printed no report.
    """
    commands: dict[str, Latencies] = {}
    errors = 0
    for line in text.splitlines():
        named = _LINE.match(line)
        if not named:
            continue
        figures = {
            (figure[1] or figure[3]): float(figure[2] or figure[4])
            for figure in _FIGURE.finditer(line)
        }
        if named[1].endswith("_ERROR"):
            errors += int(figures["Count"])
        elif named[1] in _COMMANDS:
            commands[_COMMANDS[named[1]]] = Latencies(
                int(figures["Count"]),
                *(figures[name] * 1e3 for name in ("Avg", "50th", "95th", "99th")),
            )
    finished = _FINISHED.search(text)
    if not finished or not (commands or errors):
        raise QjouleError(f"go-ycsb printed no report: {_end(text)}")
    # What is read and then written is also reported as a read and an update.
    both = commands.get("read-modify-write")
    if both is not None:
        commands = _without_parts(commands, both.operations)
    return Outcome(
        operations=sum(latencies.operations for latencies in commands.values()),
        errors=errors,
        wall_s=_seconds(finished[1]),
        client=client,
        commands=commands,
    )


def _without_parts(commands: Mapping[str, Latencies], both: int) -> dict[str, Latencies]:
    """Counts each read-modify-write once; the latency of reads is of all reads."""
    adjusted = {}
    for name, latencies in commands.items():
        operations = latencies.operations - (both if name in ("read", "update") else 0)
        if operations > 0:
            adjusted[name] = Latencies(
                operations, latencies.mean_ns, latencies.p50_ns, latencies.p95_ns, latencies.p99_ns
            )
    return adjusted


def _seconds(duration: str) -> float:
    """Go's: `1m2.5s`, `812.3ms`."""
    parts = re.findall(r"([0-9.]+)(h|ms|µs|us|m|s)", duration)
    return sum(float(value) * _UNITS_S[unit] for value, unit in parts)


def sql_driver(
    name: str,
    connect: Callable[[Target, str], Any],
    error: type[Exception],
    analyze: str,
) -> Driver:
    """A driver of SQL, whose properties begin with its name.

    `connect`: to the target, in the given database if it names none. `analyze`: the statement,
    before the table, that lets the server plan for the records.
    """

    def properties(target: Target, _threads: int) -> Mapping[str, object]:
        return {
            f"{name}.host": target.host,
            f"{name}.port": target.port,
            f"{name}.user": target.user,
            f"{name}.password": target.password,
            f"{name}.db": target.database or DATABASE,
        }

    def execute(target: Target, statement: str) -> None:
        with closing(connect(target, DATABASE)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    return Driver(
        name,
        properties,
        lambda target: execute(target, f"DROP TABLE IF EXISTS {TABLE}"),
        (error,),
        loaded=lambda target: execute(target, f"{analyze} {TABLE}"),
    )
