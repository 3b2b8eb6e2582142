# SPDX-License-Identifier: Apache-2.0
"""Functions are named in a process of its own, and what happens if that fails."""

from __future__ import annotations

import errno
import mmap
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from qjoule.children import run_in_subprocess
from qjoule.commands import naming_process
from qjoule.commands.frame_names import frame_names
from qjoule.commands.naming_process import NamingProcess
from qjoule.contract import NODE, NODE_KIND
from qjoule.engine.stacks import Name, NotYetNamed, PlanNode
from qjoule.root_part.reader_filter import confine_reader
from qjoule.servers.elf import open_executable
from qjoule.servers.symbols import demangled
from qjoule.session.stacks import OpenTables
from qjoule.trace.meta import Module

PYTHON = Path(sys.executable).resolve()
SORT = NODE | 4711 << NODE_KIND | 3  #: no node of any version


@contextmanager
def naming(*paths: Path) -> Iterator[NamingProcess]:
    modules = [
        Module(number, str(path), open_executable(path).build_id)
        for number, path in enumerate(paths, 1)
    ]
    nowhere = Module(9, "/nowhere/\x1b[2Jx", "ab" * 20)
    process = NamingProcess(OpenTables(modules=(*modules, nowhere)))
    try:
        yield process
    finally:
        process.close()


def ask(process: NamingProcess, module: int, offset: int) -> str:
    """Again and again, as the view does."""
    while True:
        with suppress(NotYetNamed):
            return process.name(module, offset)


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
        names = [ask(process, *place) for place in places]
        assert names[1] == symbols(1, 1)
        assert isinstance(ask(process, 9, SORT), PlanNode)
        assert process.missing == (
            "no functions' names in \ufffd[2Jx: cannot open /nowhere/"
            "\ufffd[2Jx: No such file or directory",
        )
        return names


def test_names_are_those_of_the_files() -> None:
    named, _, *others = apart(partial(_named))
    assert named == "Py_BytesMain"
    assert others == ["\ufffd[2Jx+0x10", "(unknown file)+0x10", "node 4711 #3"]


def _ended(how: str) -> list[str]:
    with naming(PYTHON) as process:
        ask(process, 9, 1)  # it serves, and ends with this one
        os.kill(process.pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        if how == "silent":
            process._patience_s = 0.1
        confine_reader()  # as the command is while it reads the stream
        first = ask(process, 1, 0x40)
        return [first, ask(process, 9, SORT), process.problem]


@pytest.mark.parametrize(("how", "reason"), [("killed", "has ended"), ("silent", "20 s in all")])
def test_without_the_process_a_frame_is_its_file_and_offset(how: str, reason: str) -> None:
    names = apart(partial(_ended, how))
    assert names[:2] == [f"{PYTHON.name}+0x40", "node #3"]
    assert names[2].startswith("some functions have no names")
    assert reason in names[2]


def name_by(named: Name) -> None:
    """In this process, which ends with its test."""
    pytest.MonkeyPatch().setattr(naming_process, "frame_names", lambda _modules, **_how: named)


def _late() -> list[str]:
    with naming(PYTHON) as process:
        ask(process, 9, 1)
        os.kill(process.pid, signal.SIGSTOP)
        missing = []
        for offset in (2, 3):
            with pytest.raises(NotYetNamed):
                process.name(9, offset)
            missing.append(process.missing[0])
        assert process.name(9, 1), "of what is known"
        os.kill(process.pid, signal.SIGCONT)
        return [ask(process, 9, 3), ask(process, 9, 2), *missing, *process.missing]


def test_nobody_waits_for_a_late_name() -> None:
    *names, before, again, after = apart(partial(_late))
    assert names == ["\ufffd[2Jx+0x3", "\ufffd[2Jx+0x2"]
    assert before == again == naming_process.READING
    assert after.startswith("no functions' names in")


FORBIDDEN: tuple[Callable[[], object], ...] = (
    lambda: os.open(PYTHON, os.O_RDONLY),
    lambda: list(Path("/").iterdir()),
    lambda: mmap.mmap(-1, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC),
    *(os.fork, socket.socket, lambda: os.kill(os.getppid(), 9), os.pipe),
)


def _confined() -> list[str]:
    def named(_module: int, offset: int) -> str:
        try:
            return repr(FORBIDDEN[offset]())
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    name_by(named)
    with naming(PYTHON) as process:
        return [ask(process, 1, number) for number in range(len(FORBIDDEN))]


def test_it_opens_and_starts_nothing() -> None:
    assert apart(partial(_confined)) == ["EPERM"] * len(FORBIDDEN)


def _demangled() -> list[str]:
    name_by(lambda _module, _offset: demangled("_ZNK4qnew3maxERKi"))
    with naming() as process:
        return [ask(process, 9, 1)]


def test_names_of_cxx_are_read_there() -> None:
    assert apart(partial(_demangled)) == ["qnew::max(int const&) const"]


def _stalling() -> list[str]:
    """Each name takes a third of the time that all may take."""

    def named(_module: int, _offset: int) -> str:
        select.poll().poll(100)  # ms; it may not sleep
        return "f"

    name_by(named)
    with naming(PYTHON) as process:
        ask(process, 9, 1)  # it takes a while to start
        process._patience_s = 0.3
        return [ask(process, 1, offset) for offset in range(5)] + [process.problem]


def test_all_names_together_have_a_limit_of_time() -> None:
    *names, problem = apart(partial(_stalling))
    assert names[0] == "f"
    assert names[3:] == [f"{PYTHON.name}+{offset:#x}" for offset in (3, 4)]
    assert "in all" in problem


def _looping() -> list[str]:
    def named(_module: int, _offset: int) -> str:
        while True:
            pass

    naming_process._PATIENCE_S, naming_process._CPU_S = 0.05, 1
    name_by(named)
    with naming(PYTHON) as process:
        ask(process, 1, 1)
        return [str(os.WTERMSIG(os.waitpid(process.pid, 0)[1]))]


def test_a_process_that_loops_ends() -> None:
    assert apart(partial(_looping)) == [str(int(signal.SIGKILL))]


def _failing() -> list[str]:
    calls = []

    def named(module: int, offset: int) -> str:
        calls.append(module)
        if module == 1:
            raise LookupError(f"a file that nobody foresaw: {offset}")
        return "x" * 500 + f"{len(calls)}"

    name_by(named)
    with naming(PYTHON) as process:
        names = [ask(process, *place) for place in ((1, 1), (1, 2), (9, 3))]
        assert len(ask(process, 9, SORT)) <= 224 + len(" #3")
        return [*names, *process.missing]


def test_a_file_that_cannot_be_read_costs_its_own_names_alone() -> None:
    first, second, other, missing = apart(partial(_failing))
    assert [first, second] == [f"{PYTHON.name}+0x1", f"{PYTHON.name}+0x2"]
    assert other == "x" * 224
    assert missing == f"no functions' names in {PYTHON.name}: its symbols cannot be read"


def _remembered() -> list[str]:
    naming_process._REMEMBERED = 3
    with naming(PYTHON) as process:
        for offset in range(20):
            ask(process, 9, offset)
            assert len(process._names) <= 3
    return []


def test_names_are_remembered_in_bounded_memory() -> None:
    assert apart(partial(_remembered)) == []


def test_files_of_a_container_are_found_below_its_root(tmp_path: Path) -> None:
    executable = open_executable(PYTHON)
    (function,) = executable.functions("Py_BytesMain")
    (tmp_path / "usr").mkdir()
    shutil.copy(PYTHON, tmp_path / "usr" / "serverd")
    modules = [Module(1, "/usr/serverd", executable.build_id)]
    assert frame_names(modules, tmp_path)(1, function.vaddr) == "Py_BytesMain"
    assert frame_names(modules)(1, function.vaddr) == f"serverd+{function.vaddr:#x}"
