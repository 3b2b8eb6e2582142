# SPDX-License-Identifier: Apache-2.0
"""go-ycsb as the client, where it is installed: how it is called, and what it prints.

The module of each server has its `DRIVER`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.studies.by_server import module_for, products_in
from qjoule.studies.servers.fetched import fetched
from qjoule.studies.servers.unavailable import Unavailable
from qjoule.studies.workload import Latencies, Outcome, Target
from qjoule.studies.ycsb.goycsb.driver import Driver
from qjoule.studies.ycsb.plan import LONGEST_SCAN, Settings
from qjoule.studies.ycsb.store import TABLE

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
_FINISHED = re.compile(r"^Run finished, takes ([0-9.hmsµu]+)$", re.MULTILINE)
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6}


def installed() -> Path | None:
    """The program, on PATH or as `make servers SERVERS=go-ycsb` brings it."""
    found = shutil.which(_PROGRAM)
    if found:
        return Path(found)
    try:
        return fetched(_PROGRAM, _PROGRAM) / _PROGRAM
    except Unavailable:
        return None


def version(program: Path) -> str:
    """`go-ycsb 1.0.1`; without a number where the program does not tell."""
    known = _VERSION.search(program.parent.name)
    return f"{_PROGRAM} {known[1]}" if known else _PROGRAM


def refusal(target: Target, wanted: Settings) -> str:
    """Why go-ycsb cannot do this; empty if it can."""
    if target.flavour not in products_in(__name__):
        return f"go-ycsb has no driver for {target.flavour}"
    driver = _driver(target.flavour)
    if "scan" in wanted.mix.shares and not driver.scans:
        return f"go-ycsb cannot scan {target.flavour}"
    if target.database and driver.databases and target.database not in driver.databases:
        return driver.other_database
    if wanted.operations % wanted.threads:
        return "go-ycsb runs equally many operations in each thread, and leaves out the rest"
    return ""


def run(program: Path, target: Target, wanted: Settings) -> Outcome:
    """Runs the workload on the records that are there.

    Raises:
        QjouleError: it fails, with the end of its output.
    """
    with tempfile.TemporaryDirectory(prefix="qjoule-ycsb-") as directory:
        file = Path(directory) / "properties"  # a command line is for everybody to read
        file.touch(0o600)
        file.write_text("".join(f"{k}={v}\n" for k, v in properties(target, wanted).items()))
        argv = [str(program), "run", _driver(target.flavour).name, "-P", str(file)]
        argv += ["--threads", str(wanted.threads), "--interval", "3600"]
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", check=False, cwd=directory
        )
    if done.returncode:
        raise QjouleError(f"go-ycsb failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return read_output(done.stdout, version(program))


def properties(target: Target, wanted: Settings) -> Mapping[str, object]:
    """Of the workload, the records and the server."""
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
    found: Driver = module_for(__name__, product).DRIVER
    return found


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
            (found[1] or found[3]): float(found[2] or found[4]) for found in _FIGURE.finditer(line)
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
        raise QjouleError(f"go-ycsb printed no report: {text.strip()[-500:]}")
    # What is read and then written is also reported as a read and an update.
    both = commands.get("read-modify-write")
    if both is not None:
        commands = _without_parts(commands, both.operations)
    return Outcome(
        operations=sum(one.operations for one in commands.values()),
        errors=errors,
        wall_s=_seconds(finished[1]),
        client=client,
        commands=commands,
        notes=("go-ycsb draws its operations anew each time: the seed is of the records alone",),
    )


def _without_parts(commands: Mapping[str, Latencies], both: int) -> dict[str, Latencies]:
    """Counts each read-modify-write once; the latency of reads is of all reads."""
    kept = {}
    for name, one in commands.items():
        left = one.operations - (both if name in ("read", "update") else 0)
        if left > 0:
            kept[name] = Latencies(left, one.mean_ns, one.p50_ns, one.p95_ns, one.p99_ns)
    return kept


def _seconds(duration: str) -> float:
    """Go's: `1m2.5s`, `812.3ms`."""
    parts = re.findall(r"([0-9.]+)(h|ms|µs|us|m|s)", duration)
    return sum(float(value) * _UNITS_S[unit] for value, unit in parts)
