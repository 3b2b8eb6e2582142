# SPDX-License-Identifier: Apache-2.0
"""Functions are named in a process of its own, and what happens if that fails."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from qjoule.children import run_in_subprocess
from qjoule.commands import naming_process
from qjoule.commands.frame_names import frame_names
from qjoule.commands.naming_process import NamingProcess
from qjoule.contract import NODE, NODE_KIND
from qjoule.engine.stacks import PlanNode
from qjoule.servers.elf import open_executable
from qjoule.trace.meta import Module

PYTHON = Path(sys.executable).resolve()
SORT = NODE | 4711 << NODE_KIND | 3  #: no node of any version


@contextmanager
def naming(*paths: Path) -> Iterator[NamingProcess]:
    modules = [
        Module(number, str(path), open_executable(path).build_id)
        for number, path in enumerate(paths, 1)
    ]
    process = NamingProcess([*modules, Module(9, "/nowhere/\x1b[2Jx", "ab" * 20)])
    try:
        yield process
    finally:
        process.close()


def apart(work: partial[list[str]]) -> list[str]:
    """A process that was forked for `work` has one thread, as the command has."""
    return run_in_subprocess(work)


def _named() -> list[str]:
    executable = open_executable(PYTHON)
    (function,) = executable.functions("Py_BytesMain")
    symbols = frame_names([Module(1, str(PYTHON), executable.build_id)])
    assert symbols(1, function.vaddr) == "Py_BytesMain"
    with naming(PYTHON) as process:
        places = (1, function.vaddr), (1, 1), (9, 0x10), (5, 0x10), (9, SORT)
        found = [process.name(*place) for place in places]
        assert found[1] == symbols(1, 1)
        assert isinstance(process.name(9, SORT), PlanNode)
        assert not process.problem
        return found


def test_names_are_those_of_the_files() -> None:
    named, _, *others = apart(partial(_named))
    assert named == "Py_BytesMain"
    assert others == ["\ufffd[2Jx+0x10", "(unknown file)+0x10", "node 4711 #3"]


def _ended(how: str) -> list[str]:
    with naming(PYTHON) as process:
        if how == "killed":
            os.kill(process._pid, signal.SIGKILL)
        else:
            os.kill(process._pid, signal.SIGSTOP)
            process._connection.settimeout(0.1)
        first = process.name(1, 0x40)
        return [first, process.name(9, SORT), process.problem]


@pytest.mark.parametrize("how", ["killed", "silent"])
def test_without_the_process_a_frame_is_its_file_and_offset(how: str) -> None:
    found = apart(partial(_ended, how))
    assert found[:2] == [f"{PYTHON.name}+0x40", "node #3"]
    assert found[2].startswith("functions have no names")


def _remembered() -> list[str]:
    naming_process._REMEMBERED = 3
    with naming(PYTHON) as process:
        for offset in range(20):
            process.name(9, offset)
            assert len(process._names) <= 3
    return []


def test_names_are_remembered_in_bounded_memory() -> None:
    assert apart(partial(_remembered)) == []
