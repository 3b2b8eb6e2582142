# SPDX-License-Identifier: Apache-2.0
"""Stacks of real servers, built as Debian builds them: followed to the threads' entries, and no
byte of a stack is in what is written.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from qjoule.spool.files import is_captured
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracing.canaries import in_files
from tracing.recording import Run, qjoule, recording
from tracing.redis_client import redis_client, resp

pytestmark = [pytest.mark.root, pytest.mark.server]
PARTS = Path(__file__).parents[2] / "support" / "tracer_parts"
SPINNING, MAPPING = PARTS / "spinning.c", PARTS / "mapping.c"
SECRET = b"kanary-on-the-stack-4711"
SECONDS = 4.0
HZ = "997"
ENERGY = ("--energy", "estimated:5,8,12,20")


class Secret:
    """What `in_files` looks for."""

    @staticmethod
    def found_in(content: bytes) -> list[str]:
        return ["secret"] if SECRET in content or SECRET[:8] in content else []


@contextmanager
def spinning(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    program = directory / "spinning"
    options = ("-O1", "-fomit-frame-pointer")
    subprocess.run(["gcc", *options, str(SPINNING), "-o", str(program)], check=True)
    with subprocess.Popen([str(program), SECRET.decode()]) as process:
        yield process
        process.kill()


def test_what_is_on_a_stack_is_in_no_file(tmp_path: Path) -> None:
    """The process ends before the recording does, and before functions are named."""
    trace = tmp_path / "t"
    with spinning(tmp_path) as process:
        memory = Path(f"/proc/{process.pid}/mem")
        assert _on_stack(memory), "or nothing could be found"
        options = ("--pid", str(process.pid), "--stacks", HZ, "--convert", "later", *ENERGY)
        with recording(trace, *options):
            time.sleep(SECONDS / 2)
            process.kill()
            time.sleep(0.5)
    assert is_captured(trace)
    assert in_files(Secret(), trace) == []  # type: ignore[arg-type]
    assert qjoule("convert", str(trace)).returncode == 0
    assert in_files(Secret(), trace) == []  # type: ignore[arg-type]
    lines = qjoule("flame", str(trace)).stdout
    assert ";main;spin " in lines
    samples = Trace(trace).table("samples")
    assert samples.num_rows > 20
    assert all(samples.column("whole").to_pylist())


def _on_stack(memory: Path) -> bool:
    maps = memory.with_name("maps").read_text().splitlines()
    start, end = (
        int(edge, 16)
        for edge in next(line for line in maps if line.endswith("[stack]")).split()[0].split("-")
    )
    with memory.open("rb") as file:
        file.seek(start)
        return SECRET in file.read(end - start)


def _statements(server: DatabaseServer) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for number in range(400):
            cursor.execute(
                "select count(*), max(a.n) from (select 1 n union select 2 union select 3) a "
                f"join (select {number} m union select 5 union select 6) b on a.n <= b.m"
            )
            cursor.fetchall()


def _commands(server: DatabaseServer) -> None:
    with redis_client(server.port) as client:
        for number in range(2000):
            client.ask(resp(b"LPUSH", b"list", b"%d" % number))
            client.ask(resp(b"LRANGE", b"list", b"0", b"50"))


@pytest.mark.parametrize(
    ("name", "work", "function"),
    [
        ("mariadb", _statements, "mysql_execute_command(THD*, bool)"),
        ("postgres", _statements, "PostgresMain"),
        ("redis", _commands, "processCommand"),
    ],
)
def test_servers_stacks_reach_their_threads_entry(
    name: str,
    work: Callable[[DatabaseServer], None],
    function: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    options = ("--pid", str(server.pid), "--stacks", HZ, *ENERGY)
    with recording(tmp_path / "t", *options):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            work(server)
    run = Run(tmp_path / "t")
    complete = run.trace.table("samples").column("whole").to_pylist()
    assert len(complete) > 100
    assert sum(complete) >= 0.95 * len(complete)
    lines = qjoule("flame", str(tmp_path / "t")).stdout.splitlines()
    result = json.loads(qjoule("attribute", str(tmp_path / "t"), "--format", "json").stdout)
    total = sum(int(line.rpartition(" ")[2]) for line in lines)
    assert total == round(result["totals_j"]["measured"] * 1e9)
    assert any(f";{function};" in line for line in lines)


PLPGSQL = """
create or replace function spun(n int) returns int language plpgsql as $$
declare total int := 0;
begin
    for i in 1..n loop
        total := (total * 31 + i) % 1000;
    end loop;
    return total;
end $$
"""


def test_a_library_that_backends_map_later_is_passed(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    """A backend maps plpgsql.so in its first call: one has before, one does meanwhile."""
    with (
        closing(postgres.connect()) as before,
        before.cursor() as early,
        closing(postgres.connect()) as after,
        after.cursor() as late,
    ):
        early.execute(PLPGSQL)
        early.execute("select spun(1)")
        with recording(tmp_path / "t", "--pid", str(postgres.pid), "--stacks", HZ, *ENERGY):
            for cursor in (early, late):
                end = time.monotonic() + SECONDS / 2
                while time.monotonic() < end:
                    cursor.execute("select spun(50000)")
        early.execute("drop function spun(int)")
    samples = Run(tmp_path / "t").trace.table("samples")
    whole = samples.column("whole").to_pylist()
    assert len(whole) > 1000
    assert sum(whole) >= 0.95 * len(whole)
    every = qjoule("flame", str(tmp_path / "t")).stdout.splitlines()
    lines = [line for line in every if "spun" in line]
    inside = [line for line in lines if ";plpgsql_exec_function;" in line]
    assert all(";PostgresMain;" in line for line in inside)
    assert energy_of(inside) >= 0.9 * energy_of(lines)


def energy_of(lines: Sequence[str]) -> int:
    return sum(int(line.rpartition(" ")[2]) for line in lines)


def test_a_server_that_maps_code_in_a_loop_costs_no_samples(tmp_path: Path) -> None:
    program, trace = tmp_path / "mapping", tmp_path / "t"
    subprocess.run(["gcc", "-O1", str(MAPPING), "-o", str(program)], check=True)
    with subprocess.Popen([str(program)]) as process:
        try:
            with recording(trace, "--pid", str(process.pid), "--stacks", HZ, *ENERGY):
                time.sleep(SECONDS / 2)
        finally:
            process.kill()
    run = Run(trace)
    whole = run.trace.table("samples").column("whole").to_pylist()
    assert len(whole) > 1000
    assert sum(whole) >= 0.95 * len(whole)
    assert "stack" not in run.trace.loss
