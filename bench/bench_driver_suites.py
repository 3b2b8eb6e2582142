"""Whether drivers still pass their own tests with the shims: the same results with and without.

    python bench/bench_driver_suites.py [--only pymysql|redis]

Takes the suites from the drivers' source distributions, runs each twice bare and once under
`qjoule run` with a recorder that listens, and compares the outcomes test by test. What differs
between the two bare runs depends on neither. pymysql: 0.10.1, the last release whose source
distribution holds its tests. redis-py: those of its commands, connections and pipelines, without
what needs a cluster, TLS or modules.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bench.bench_drivers import listener  # noqa: E402

from servers.mariadb import mariadb_server  # noqa: E402
from servers.process import DatabaseServer  # noqa: E402
from servers.redis import redis_server  # noqa: E402

TIMEOUT_S = 1800
REDIS_TESTS = (
    *("commands", "connection", "connection_pool", "encoding", "lock", "monitor"),
    *("pipeline", "pubsub", "retry", "scripting"),
)
Outcomes = Mapping[str, str]


@dataclass(frozen=True)
class Suite:
    """A driver's own tests: where they are, and what they need."""

    requirement: str
    packages: tuple[str, ...]
    server: Callable[[], Any]
    arguments: Callable[[Path, DatabaseServer], list[str]]


def _pymysql(source: Path, server: DatabaseServer) -> list[str]:
    common = {"host": "127.0.0.1", "port": server.port, "user": "root", "passwd": ""}
    with server.connect() as connection, connection.cursor() as cursor:
        for name in ("test1", "test2"):
            cursor.execute(f"create database if not exists {name} default charset utf8mb4")
        cursor.execute("set global local_infile = 1")
    databases = [
        {**common, "db": "test1", "use_unicode": True, "local_infile": True},
        {**common, "db": "test2"},
    ]
    (source / "pymysql" / "tests" / "databases.json").write_text(json.dumps(databases))
    return ["pymysql/tests"]


def _redis(_source: Path, server: DatabaseServer) -> list[str]:
    left_out = ("onlycluster", "redismod", "ssl", "cp_integration", "fixed_client")
    return [
        *(f"tests/test_{name}.py" for name in (*REDIS_TESTS, "multiprocessing")),
        *(f"tests/test_asyncio/test_{name}.py" for name in REDIS_TESTS),
        f"--redis-url=redis://127.0.0.1:{server.port}/0",
        *("-m", "not (" + " or ".join(left_out) + ")"),
        *("-k", "not cluster and not sentinel"),
    ]


SUITES = {
    "pymysql": Suite("pymysql==0.10.1", ("pytest<9",), mariadb_server, _pymysql),
    "redis": Suite(
        "redis==8.1.0",
        (
            *("pytest<9", "pytest-asyncio", "pytest-timeout", "coverage", "cachetools", "mock"),
            *("async-timeout", "numpy", "opentelemetry-sdk", "pybreaker", "PyJWT", "requests"),
            "ujson",
        ),
        redis_server,
        _redis,
    ),
}


def source_of(requirement: str, directory: Path) -> Path:
    """Unpacks the source distribution; returns its folder."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary"]
    name = requirement.partition("==")[0]  # what builds it may come built
    subprocess.run([*pip, name, requirement], cwd=directory, check=True)
    (archive,) = directory.glob("*.tar.gz")
    shutil.unpack_archive(archive, directory)
    (folder,) = (path for path in directory.iterdir() if path.is_dir())
    return folder


def python_with(packages: tuple[str, ...], directory: Path) -> Path:
    """A virtual environment's interpreter; it has no qjoule."""
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    python = directory / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python


def outcomes(argv: list[str], source: Path, environment: Mapping[str, str]) -> Outcomes:
    """Runs pytest; what became of each test."""
    report = source / "report.xml"
    report.unlink(missing_ok=True)
    ran = subprocess.run(
        [*argv, f"--junitxml={report}", "-q", "-p", "no:cacheprovider", "--tb=no"],
        cwd=source,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    for line in ran.stderr.splitlines():
        if line.startswith("qjoule:"):
            print(f"  {line}")
    if not report.exists():
        raise SystemExit(f"  no tests ran: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[f"{case.get('classname')}::{case.get('name')}"] = min(kinds, default="passed")
    return found


def differences(one: Outcomes, other: Outcomes) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def run(suite: Suite) -> bool:
    """Prints what was found; true if nothing differs because of the shim."""
    print(suite.requirement, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source = source_of(suite.requirement, place)
        python = python_with(suite.packages, place / "venv")
        runner = [str(Path(sys.executable).with_name("qjoule")), "run"]
        tagged = [*runner, "--tag", "suite=own", "--", str(python)]
        with suite.server() as server, listener() as path:
            arguments = ["-m", "pytest", *suite.arguments(source, server)]
            bare = outcomes([str(python), *arguments], source, {})
            with_shim = outcomes([*tagged, *arguments], source, {"QJOULE_TAGS_SOCKET": str(path)})
            again = outcomes([str(python), *arguments], source, {})
    unsteady = differences(bare, again)
    differing = differences(bare, with_shim) - unsteady
    counts = ", ".join(f"{count} {what}" for what, count in Counter(with_shim.values()).items())
    print(f"  {len(with_shim)} tests with the shim: {counts}")
    print(f"  differ between two runs without it: {len(unsteady)}")
    print(f"  differ because of it: {len(differing)} (target 0)", *sorted(differing), sep="\n    ")
    return bool(with_shim) and not differing


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(SUITES), metavar="DRIVER")
    chosen = parser.parse_args()
    results = [run(SUITES[name]) for name in chosen.only or SUITES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
