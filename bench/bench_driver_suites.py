# SPDX-License-Identifier: Apache-2.0
"""Whether database drivers pass their own tests with the shims exactly as without them.

    python bench/bench_driver_suites.py [--only pymysql|redis]

Takes the test suites from the drivers' source distributions. Runs each test file twice at the same
time, bare and under `qjoule run` with a listening recorder, each on its own server, and compares
the outcomes test by test. A file with differences is repeated, one way after the other. A
difference counts only if an outcome occurred only with the shim. Tests that cannot run here are
left out both ways and listed with the reason. pymysql: 0.10.1, the last release whose source
distribution contains its tests.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.drivers.recorders import listener  # noqa: E402

from qjoule_studies.servers.mysql import mariadb_server  # noqa: E402
from qjoule_studies.servers.process import DatabaseServer  # noqa: E402
from qjoule_studies.servers.redis import redis_server  # noqa: E402

FILE_TIMEOUT_S, TEST_TIMEOUT_S = 600, 30
PYTEST = ("-q", "-p", "no:cacheprovider", "--tb=no", f"--timeout={TEST_TIMEOUT_S}")
#: How often a file with different outcomes is repeated.
REPEATS = 2
Outcomes = Mapping[str, str]


@dataclass(frozen=True)
class Suite:
    """A driver's own tests: where they are and what they need."""

    requirement: str
    packages: tuple[str, ...]
    tests: str  #: the tests' folder
    server: Callable[[], Any]
    options: Callable[[Path, DatabaseServer], list[str]]
    files_left_out: Mapping[str, str] = field(default_factory=dict)  #: reason by part of a path
    marks_left_out: Mapping[str, str] = field(default_factory=dict)

    def files(self, source: Path) -> list[str]:
        """Paths of the tests to run, relative to the source distribution."""
        every = sorted(str(file.relative_to(source)) for file in source.glob("**/test_*.py"))
        chosen_files = [file for file in every if file.startswith(f"{self.tests}/")]
        return [
            file for file in chosen_files if not any(part in file for part in self.files_left_out)
        ]


@dataclass(frozen=True)
class Side:
    """One of the two ways to run the tests: a copy of them, with its own server."""

    argv: list[str]
    source: Path
    environment: Mapping[str, str]
    messages: set[str] = field(default_factory=set)  #: what `qjoule run` reports as wrapped


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
    return []


def _redis(_source: Path, server: DatabaseServer) -> list[str]:
    return [f"--redis-url=redis://127.0.0.1:{server.port}/0"]


SUITES = {
    "pymysql": Suite(
        "pymysql==0.10.1",
        ("pytest<9", "pytest-timeout"),
        "pymysql/tests",
        mariadb_server,
        _pymysql,
    ),
    "redis": Suite(
        "redis==8.1.0",
        (
            *("pytest<9", "pytest-asyncio", "pytest-timeout", "coverage", "cachetools", "mock"),
            *("async-timeout", "numpy", "opentelemetry-sdk", "pybreaker", "PyJWT", "requests"),
            *("redis-entraid==1.2.1", "ujson"),
        ),
        "tests",
        redis_server,
        _redis,
        files_left_out={
            "test_scenario/": "drive a Redis Enterprise cluster through its fault injector",
            "cluster_maint_notifications_handling": "need a cluster behind a proxy of their own",
        },
        marks_left_out={
            "onlycluster": "a cluster of six servers",
            "redismod": "a server with the modules of Redis Stack",
            "ssl": "a TLS server with certificates of the developers' image",
            "cp_integration": "credentials of a cloud",
            "multidb_integration": "two clusters and two servers of the developers' image",
        },
    ),
}


def source_of(requirement: str, directory: Path) -> Path:
    """Unpacks the source distribution; returns its folder."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary"]
    name = requirement.partition("==")[0]  # its build requirements may come as wheels
    subprocess.run([*pip, name, requirement], cwd=directory, check=True)
    (archive,) = directory.glob("*.tar.gz")
    shutil.unpack_archive(archive, directory)
    (folder,) = (path for path in directory.iterdir() if path.is_dir())
    return folder


def python_with(packages: tuple[str, ...], directory: Path) -> Path:
    """Interpreter of a virtual environment without qjoule."""
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    python = directory / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python


def outcomes(side: Side, file: str) -> Outcomes:
    """Runs a file under pytest; returns the outcome of each test."""
    report = side.source / "report.xml"
    report.unlink(missing_ok=True)
    process = subprocess.Popen(
        [*side.argv, file, f"--junitxml={report}"],
        cwd=side.source,
        env={**os.environ, **side.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=FILE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {file: f"took more than {FILE_TIMEOUT_S} s"}
    finally:
        with suppress(ProcessLookupError):  # what its tests left behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    side.messages.update(line for line in output.splitlines() if line.startswith("qjoule:"))
    if not report.exists():
        return {file: f"did not run: {output[-2000:]}"}
    outcome_of = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        outcome_of[f"{case.get('classname')}::{case.get('name')}"] = min(kinds, default="passed")
    return outcome_of


def differences(bare: list[Outcomes], shimmed: list[Outcomes]) -> set[str]:
    """Tests with an outcome that occurred only with the shim."""
    names = {name for run in (*bare, *shimmed) for name in run}
    return {
        name
        for name in names
        if {run.get(name) for run in shimmed} - {run.get(name) for run in bare}
    }


def compare(file: str, bare: Side, shimmed: Side) -> tuple[Outcomes, Outcomes, set[str]]:
    """Outcomes without and with the shim, and the tests that differ because of the shim."""
    with ThreadPoolExecutor(2) as pool:
        bare_outcomes, shimmed_outcomes = pool.map(outcomes, (bare, shimmed), (file, file))
    without, with_it = [bare_outcomes], [shimmed_outcomes]
    for _ in range(REPEATS):
        if bare_outcomes == shimmed_outcomes:
            break
        without.append(outcomes(bare, file))
        with_it.append(outcomes(shimmed, file))
    return bare_outcomes, shimmed_outcomes, differences(without, with_it)


def counted(outcomes: Outcomes) -> str:
    """Passed/failed/skipped. An error counts as a failure, and so does a test that did not run."""
    counts = Counter(outcomes.values())
    passed, skipped = counts["passed"], counts["skipped"]
    return f"{passed}/{len(outcomes) - passed - skipped}/{skipped}"


def table(suite: Suite, bare: Side, shimmed: Side) -> bool:
    """Runs the tests and prints them file by file; true if nothing differs because of the shim."""
    print(f"  {'passed/failed/skipped':60} {'without':>14} {'with':>14} differing")
    every: tuple[dict[str, str], dict[str, str], set[str]] = ({}, {}, set())
    for file in suite.files(bare.source):
        bare_outcomes, shimmed_outcomes, differing = compare(file, bare, shimmed)
        for name, status in shimmed_outcomes.items():
            if status not in ("passed", "failure", "error", "skipped"):
                print(f"    {name}: {status}")
        if bare_outcomes or shimmed_outcomes:
            short = file.removeprefix(suite.tests).lstrip("/")
            print(
                f"  {short:60} {counted(bare_outcomes):>14} {counted(shimmed_outcomes):>14} "
                f"{len(differing)}"
            )
            print(*(f"    {name}\n" for name in sorted(differing)), sep="", end="", flush=True)
        every[0].update((f"{file} {name}", status) for name, status in bare_outcomes.items())
        every[1].update((f"{file} {name}", status) for name, status in shimmed_outcomes.items())
        every[2].update(differing)
    tests = len(every[1])
    print(f"  {f'all {tests} tests':60} {counted(every[0]):>14} {counted(every[1]):>14} ", end="")
    print(f"{len(every[2])} (target 0)")
    return tests > 0 and not every[2]


def run(suite: Suite) -> bool:
    """Runs and prints; true if nothing differs because of the shim."""
    start = time.monotonic()
    print(suite.requirement, flush=True)
    for excluded, why in {**suite.files_left_out, **suite.marks_left_out}.items():
        print(f"  left out: {excluded}: {why}")
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        source = source_of(suite.requirement, place)
        python = str(python_with(suite.packages, place / "venv"))
        runner = str(Path(sys.executable).with_name("qjoule"))
        tags = {"QJOULE_TAGS_SOCKET": str(stack.enter_context(listener()))}
        ways: list[tuple[str, list[str], dict[str, str]]] = [
            ("without", [], {}),
            ("with", [runner, "run", "--tag", "suite=own", "--"], tags),
        ]
        sides: list[Side] = []
        for way, prefix, environment in ways:
            copy = Path(shutil.copytree(source, place / way))
            options = suite.options(copy, stack.enter_context(suite.server()))
            argv = [*prefix, python, "-m", "pytest", *options, *PYTEST]
            if suite.marks_left_out:
                argv += ["-m", "not (" + " or ".join(suite.marks_left_out) + ")"]
            sides.append(Side(argv, copy, environment))
        same = table(suite, *sides)
    print(*(f"  {message}" for message in sorted(sides[1].messages)), sep="\n")
    print(f"  in {time.monotonic() - start:.0f} s", flush=True)
    return same and bool(sides[1].messages)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(SUITES), metavar="DRIVER")
    options = parser.parse_args()
    results = [run(SUITES[name]) for name in options.only or SUITES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
