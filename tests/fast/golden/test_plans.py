# SPDX-License-Identifier: Apache-2.0
"""Which servers are found in a /proc, and how each is traced: compared with plans.json.

After an intended change, check the difference, then regenerate the file, in which each server of a
plan is a line: `QJOULE_REGOLD=1 pytest tests/fast/golden/test_plans.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers.choice import KernelFacts
from qjoule.servers.discovery import find_servers
from qjoule.servers.plan import build_plan
from servers.fake_proc import FakeProc
from servers.toy_elf import MARIADB_10_11, MYSQL_8, POSTGRES, strip, toy_server

GOLDEN = Path(__file__).with_name("plans.json")
KERNELS = {
    "6.3": KernelFacts(reads=True, sends=True, uprobes=True),
    "no sends": KernelFacts(reads=True, sends=False, uprobes=True),
    "5.15": KernelFacts(reads=False, sends=False, uprobes=True),
    "no uprobes": KernelFacts(reads=True, sends=True, uprobes=False),
}
WANTED = (None, AttachMode.SOCKET, AttachMode.SYMBOL, AttachMode.STATISTICAL)
MONGOD = "_ZN5mongo23ServiceEntryPointMongod13handleRequestEPNS_16OperationContextERKNS_7MessageE"
CASSANDRA = ("-Xmx1G", "-cp", "/etc/cassandra:/lib/apache-cassandra-5.0.9.jar")
CASSANDRA_MAIN = "org.apache.cassandra.service.CassandraDaemon"
REDIS_BANNER = 'Redis version=%s, bits=%d\\0" "2.6.12\\0" "7.0.15\\0" "7.0.3'


@dataclass(frozen=True)
class Process:
    """A candidate: its program, how it was started, and its files."""

    program: str
    arguments: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    port: int = 0
    beside: tuple[Process, ...] = ()
    threads: tuple[str, ...] = ()


#: Programs: the version string in them, and their functions.
PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "mariadbd": ("10.11.19-MariaDB", (MARIADB_10_11,)),
    "mysqld": ("MySQL 8.0.36 ", (MYSQL_8,)),
    "postgres": ("PostgreSQL 15.20 (Debian) on x86_64", POSTGRES),
    "redis-server": (REDIS_BANNER, ()),
    "mongod": ('storage.dbPath\\0" "systemLog.destination', (MONGOD,)),
    "ferretdb": ("github.com/FerretDB/FerretDB/v1", ()),
    "java": ("", ()),
    "nginx": ("", ()),
}
PROCESSES: dict[str, Process] = {
    "mariadb": Process("mariadbd", port=3306),
    "mariadb with TLS": Process("mariadbd", ("--ssl-cert=/c.pem",), port=3306),
    "mariadb with TLS in a file": Process(
        "mariadbd", files=(("etc/my.cnf", "[mysqld]\nssl-cert=/c.pem\n"),), port=3306
    ),
    "mariadb with a pool": Process("mariadbd", ("--thread-handling=pool-of-threads",), port=3306),
    "two mariadb of one file": Process(
        "mariadbd",
        port=3306,
        beside=(Process("mariadbd", ("--thread-handling=pool-of-threads",), port=3307),),
    ),
    "mysql": Process("mysqld", port=3306),
    "mysql without TLS": Process("mysqld", ("--tls-version=",), port=3306),
    "mysql, stripped": Process("mysqld stripped", port=3306),
    "mysql with the X protocol": Process("mysqld", ("--tls-version=",), port=33060),
    "postgres": Process("postgres", ("-D", "/data"), port=5432),
    "postgres with TLS": Process("postgres", ("-D", "/data", "-c", "ssl=on"), port=5432),
    "postgres with TLS in a file": Process(
        "postgres", ("-D", "/data"), (("data/postgresql.conf", "ssl = on\n"),), port=5432
    ),
    "redis": Process("redis-server", port=6379),
    "redis with threads": Process("redis-server", port=6379, threads=("io_thd_1", "bio_aof")),
    "mongod": Process("mongod", port=27017),
    "mongod with TLS": Process("mongod", ("--tlsMode", "requireTLS"), port=27017),
    "mongod with a pool": Process("mongod", ("--serviceExecutor", "adaptive"), port=27017),
    "ferretdb": Process("ferretdb", port=27017),
    "ferretdb with TLS": Process(
        "ferretdb", ("--listen-tls=:27018", "--listen-addr=:27017"), port=27017
    ),
    "cassandra": Process("java", (*CASSANDRA, CASSANDRA_MAIN), port=9042),
    "cassandra with TLS": Process(
        "java",
        (*CASSANDRA, CASSANDRA_MAIN),
        (("etc/cassandra/cassandra.yaml", "client_encryption_options: {enabled: true}\n"),),
        port=9042,
    ),
    "voltdb": Process("java", ("-cp", "lib/*", "org.voltdb.VoltDB", "probe"), port=21212),
    "a program that is none": Process("nginx", port=80),
    "another program of java": Process("java", ("-cp", "x", "org.example.Main"), port=80),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("programs")
    toys = {
        name: toy_server(directory / name, functions, banner=banner, flags=("-O0",))
        for name, (banner, functions) in PROGRAMS.items()
    }
    (directory / "stripped").mkdir()
    banner = 'mysql_native_password\\0" "MySQL 8.0.36 '
    stripped = toy_server(
        directory / "stripped" / "mysqld", [MYSQL_8], banner=banner, exported=False
    )
    return toys | {"mysqld stripped": strip(stripped)}


def _in_proc(fake: FakeProc, process: Process, programs: dict[str, Path]) -> None:
    for pid, started in enumerate((process, *process.beside), start=100):
        for name, text in started.files:
            (fake.host / name).parent.mkdir(parents=True, exist_ok=True)
            (fake.host / name).write_text(text, "utf-8")
        entry = fake.add(pid, str(programs[started.program]), arguments=started.arguments)
        for number, name in enumerate(started.threads, start=pid):
            (entry / "task" / str(number)).mkdir(parents=True)
            (entry / "task" / str(number) / "comm").write_text(f"{name}\n", "utf-8")
        fake.listen(pid, port=started.port, inode=pid)


def _plans(fake: FakeProc) -> Iterator[tuple[str, Any]]:
    """For each kernel and set of options: the plan, or why there is none."""
    servers = find_servers(fake.tree, fake.host)
    for kernel, facts in KERNELS.items():
        for wanted in WANTED:
            wish = "any" if wanted is None else wanted.name.lower()
            try:
                plan = build_plan(servers, facts, wanted)
            except QjouleError as error:
                yield f"{kernel}, {wish}", str(error)
                continue
            summaries = [planned.summary() for planned in plan.servers]
            yield f"{kernel}, {wish}", {"servers": summaries, "arguments": plan.arguments()}


def _without_places(text: str, names: dict[str, str]) -> str:
    """The machine-independent part: no paths, inodes, hashes of paths, offsets of the
    compiler's.
    """
    for path, name in names.items():
        text = text.replace(path, name)
    text = re.sub(r'("--server", "\d+:[a-z]+:[a-z]+:)\d+:\d+', r"\1FILE", text)
    text = re.sub(r'"offset": \d+', '"offset": "PLACE"', text)
    text = re.sub(r":0x[0-9a-f]{9,}", ":HASH", text)
    return re.sub(r":0x[0-9a-f]{3,8}:55", ":PLACE:55", text)


def _plans_by_process(
    make_directory: Callable[[str], Path], programs: dict[str, Path]
) -> dict[str, list[dict[str, Any]]]:
    plans = {}
    for name, process in PROCESSES.items():
        base = make_directory("proc")
        fake = FakeProc(base)
        _in_proc(fake, process, programs)
        names = {str(base): "BASE", str(programs["mysqld"].parent): "PROGRAMS"}
        by_plan: dict[str, list[str]] = {}
        for conditions, plan in _plans(fake):
            by_plan.setdefault(_without_places(json.dumps(plan), names), []).append(conditions)
        plans[name] = [
            {"for": conditions, "plan": json.loads(plan)} for plan, conditions in by_plan.items()
        ]
    return plans


def _case_by_line(case: dict[str, Any]) -> str:
    """A case as JSON: each server of its plan in a line, then the tracer's arguments."""
    plan = case["plan"]
    if isinstance(plan, str):
        return json.dumps(case)
    servers = ",\n".join(json.dumps(server) for server in plan["servers"])
    return (
        f'{{"for": {json.dumps(case["for"])}, "plan": {{"servers": [\n{servers}\n],\n'
        f'"arguments": {json.dumps(plan["arguments"])}}}}}'
    )


def _by_line(plans: dict[str, list[dict[str, Any]]]) -> str:
    processes = []
    for name, cases in plans.items():
        lines = ",\n".join(_case_by_line(case) for case in cases)
        processes.append(f"{json.dumps(name)}: [\n{lines}\n]")
    return "{\n" + ",\n".join(processes) + "\n}\n"


def test_plans_of_known_candidates(
    tmp_path_factory: pytest.TempPathFactory, programs: dict[str, Path]
) -> None:
    plans = _by_line(_plans_by_process(tmp_path_factory.mktemp, programs))
    if os.environ.get("QJOULE_REGOLD"):
        GOLDEN.write_text(plans, "utf-8")
    assert plans == GOLDEN.read_text("utf-8")
