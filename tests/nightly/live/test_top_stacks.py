# SPDX-License-Identifier: Apache-2.0
"""`qjoule top --stacks` on real servers, in a real terminal: the key f shows the function and the
plan node in which the statement is known to spend its time.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qjoule_studies.servers.postgres import installed_programs, postgres_server
from qjoule_studies.servers.process import DatabaseServer, server_directory
from servers.busy import busy
from tmux import Terminal
from tracing.recording import QJOULE

pytestmark = [
    pytest.mark.root,
    pytest.mark.server,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]
LEAST = 300  #: samples, so that the largest share is certain to be the first
SORTED = "select max(p) from (select p from item order by p desc offset 10) s"
COUNTED = "select sum(n) from generate_series(1, 300000) n where n % 7 = 3"
HASHED = "select benchmark(1000, md5(space(100000)))"


@contextmanager
def page(server: DatabaseServer, directory: Path) -> Iterator[list[str]]:
    """The lines of the page of the hottest row, once it has samples."""
    terminal = Terminal(directory)
    try:
        options = f"--pid {server.pid} --stacks 499 --energy estimated:5,8,12,20"
        terminal.resize(120, 40)
        terminal.type(f"{QJOULE} top {options} -d 1; echo code=$?", "Enter")
        terminal.until(lambda screen: "select" in screen and "TOTAL estimated" in screen)
        terminal.type("f")
        yield terminal.until(enough).splitlines()
        terminal.type("q")
        terminal.until(lambda screen: "code=0" in screen)
    finally:
        terminal.close()


def enough(screen: str) -> bool:
    match = re.search(r"· ([\d,]+) samples ·", screen)
    return match is not None and int(match[1].replace(",", "")) >= LEAST and "FUNCTION" in screen


def first(lines: list[str], title: str) -> tuple[float, float, str]:
    """The first line below a title: own share and share with callees, in percent, and name."""
    below = lines[next(at for at, line in enumerate(lines) if line.endswith(title)) + 1]
    own, inside, _joules, _samples, name = re.split(r"\s{2,}", below.strip())
    return float(own.split()[0]), float(inside.split()[0]), name


@pytest.mark.timeout(240)
def test_a_sort_stands_first_among_the_nodes(postgres: DatabaseServer, tmp_path: Path) -> None:
    table = "create temp table item as select (n::bigint * 7919) % 1000003 p from "
    prepare = f"{table} generate_series(1, 300000) n", "set work_mem = '256MB'"
    with busy(postgres, *prepare, SORTED), page(postgres, tmp_path) as lines:
        own, inside, node = first(lines, "NODE OF THE PLAN")
    assert re.fullmatch(r"Sort #\d", node), lines
    assert 50 < own < inside
    assert first(lines, "FUNCTION")[2] != "unknown (not followed)", lines


@pytest.mark.timeout(240)
def test_a_hash_function_stands_first_among_the_functions(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    with busy(mariadb, HASHED), page(mariadb, tmp_path) as lines:
        own, _, function = first(lines, "FUNCTION")
    assert re.match(r"libcrypto\.so|\w*md5_block", function), lines
    assert own > 50
    assert not [line for line in lines if "NODE OF THE PLAN" in line]


@pytest.mark.timeout(240)
def test_functions_are_named_by_what_the_server_has_mapped(tmp_path: Path) -> None:
    """Like in a container, or after an upgrade, the server's file is not what its path leads to."""
    with server_directory() as place:
        programs = shutil.copytree(installed_programs().parent, place / "copy") / "bin"
        with postgres_server(programs=programs) as server:
            (programs / "postgres").unlink()
            (programs / "postgres").write_text("another file")
            with busy(server, COUNTED), page(server, tmp_path) as lines:
                functions = [
                    line.split()[-1] for line in lines if re.search(r"%\s.*\d\s+\w+$", line)
                ]
    assert "generate_series_step_int4" in functions, lines
    assert not [line for line in lines if "no functions' names in postgres" in line], lines
