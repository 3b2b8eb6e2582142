# SPDX-License-Identifier: Apache-2.0
"""Processes of our own user that try to take a socket to the root part (pidfd_getfd(2))."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from nightly.hostile.bound import USER
from tracing.recording import QJOULE

pytestmark = [pytest.mark.beside, pytest.mark.root]
THIEVES, RUNS, _MOST_S = 4, 6, 240


@pytest.fixture(scope="module")
def thief() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="qjoule-thief-") as directory:
        program = Path(directory) / "thief"
        source = Path(__file__).with_name("thief.c")
        subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-o", program, source], check=True)
        for path in (program.parent, program):
            path.chmod(0o755)
        yield program


@contextmanager
def robbed(thief: Path) -> Iterator[tuple[set[int], list[subprocess.Popen[str]]]]:
    """When the block ends: the processes of root whose sockets were taken; and the thieves."""
    taken: set[int] = set()
    with ExitStack() as stack:
        thieves = []
        for _ in range(THIEVES):
            words = [str(thief), str(USER), str(_MOST_S)]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            thieves.append(process)
        yield taken, thieves
        for process in thieves:
            process.kill()
            taken |= {int(line) for line in process.communicate()[0].split()}


def test_thieves_take_what_an_ordinary_program_holds(thief: Path) -> None:
    ours, theirs = socket.socketpair()
    # Thieves look at low numbers; the test's own process may have many descriptors.
    code = f"import os, sys; os.dup2({theirs.fileno()}, 3); sys.stdin.read()"
    waits = ["/usr/bin/python3", "-I", "-c", code]
    with ours, theirs, robbed(thief) as (taken, thieves):
        outputs: list[Any] = [one.stdout for one in thieves]
        for _ in range(_MOST_S // 8):  # thieves look at the newest processes
            holder = subprocess.Popen(
                waits,
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                user=USER,
                group=USER,
                extra_groups=[],
            )
            stolen, _, _ = select.select(outputs, [], [], 2.0)
            holder.communicate()
            if stolen:
                break
    assert os.getpid() in taken


def test_nobody_takes_a_socket_to_the_root_part(thief: Path) -> None:
    """From the command, the reattach helper or the tracer, when they start and while they run."""
    of_user = {**os.environ, "QJOULE_UID": str(USER), "QJOULE_GID": str(USER)}
    own = os.getpid()
    root_parts = set()
    with (
        tempfile.TemporaryDirectory(prefix="qjoule-thief-") as directory,
        robbed(thief) as (taken, _),
    ):
        os.chown(directory, USER, USER)
        for number in range(RUNS):
            words = f"record -d 0.3 --pid {own} -o {directory}/{number}.qjoule"
            recorder = subprocess.Popen([QJOULE, *words.split()], env=of_user)
            root_parts.add(recorder.pid)
            assert recorder.wait() == 0
    assert not taken & root_parts
