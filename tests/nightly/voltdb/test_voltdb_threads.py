# SPDX-License-Identifier: Apache-2.0
"""Where a transaction ends on its thread: a runnable thread still serves it, a sleeping one does
not.

A stand-in for VoltDB decides when its thread does which.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from qjoule.contract import Block, Mode, QueryFlag
from qjoule.servers.elf import open_executable
from qjoule.servers.voltdb.signatures import Role
from servers.toy_elf import toy_program
from tracing.root_part import RootPart
from tracing.tracer import Session, tracing

pytestmark = pytest.mark.root

SOURCE = Path(__file__).parents[2] / "support/servers" / "toy_site.c"
ROLES = (Role.BEGIN, Role.END)
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Session]]:
    """The thread that executed the transactions, and what was recorded of it."""
    path = tmp_path_factory.mktemp("voltdb") / "site"
    toy_program(path, SOURCE.read_text(), "-O1", "-pthread")
    executable = open_executable(path)
    (function,) = executable.functions("execute_fragments")
    offset = executable.file_offset(function.vaddr)
    assert offset is not None
    code = executable.read(offset, 1).hex()
    with subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as site:

        def probes(root: RootPart) -> list[str]:
            file = root.executable(site.pid)
            plan = ["--server", f"1:voltdb:symbol:{file.device}:{file.inode}"]
            for role in ROLES:
                plan += ["--probe", f"1:{role}:{file.handle}:{offset:#x}:{code}"]
            return plan

        options = ("--energy", "none", "--only-running", "--running", f"1:{site.pid}")
        with tracing(Mode.RECORD, *options, probes=probes) as session:
            said, _ = site.communicate(b"\n", timeout=TIMEOUT_S)
            session.finish()
            assert int(said) > 0, "this kernel never switches on sched_yield()"
            yield site.pid, session


def transactions(told: tuple[int, Session]) -> np.ndarray:
    site, session = told
    queries = session.records(Block.QUERY)
    return np.sort(queries[queries["pid"] == site], order="begin_ns")


def test_a_thread_that_makes_room_for_others_goes_on_with_its_transaction(
    told: tuple[int, Session],
) -> None:
    site, session = told
    first = transactions(told)[0]
    assert first["executions"] == 1
    assert first["flags"] & QueryFlag.OK
    segments = session.records(Block.SEGMENT)
    within = segments[
        (segments["pid"] == site)
        & (segments["t0_ns"] >= first["begin_ns"])
        & (segments["t1_ns"] <= first["end_ns"])
    ]
    assert within.size
    assert set(within["query"]) == {first["query"]}


def test_what_follows_a_sleep_is_a_part_of_no_execution(told: tuple[int, Session]) -> None:
    assert transactions(told)["executions"].tolist() == [1, 1, 0]
