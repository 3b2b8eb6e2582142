# SPDX-License-Identifier: Apache-2.0
"""One user's programs beside another's servers: each fails alone, and none uses up all the
limits.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.servers import order
from qjoule.servers.access import FileIdentity
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.discovery import discover
from qjoule.servers.examine import examine
from qjoule.servers.examined import Examined, Facts
from qjoule.servers.generic.find import find_generic
from qjoule.servers.host import Listed
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.order import EXAMINED_MAX, fair
from qjoule.servers.plan import SERVERS_MAX, build_plan
from qjoule.servers.procfs import Process
from qjoule.servers.resolution import Resolution
from qjoule.servers.types import Fact
from servers.fake_proc import FakeProc
from servers.hostile import facts_of

KERNEL = KernelFacts(reads=True, sends=True, uprobes=True)
ITSELF = 1000
#: uid by pid: servers of a service account and of users, after many processes of another user.
FAKES = dict.fromkeys(range(100, 100 + 3 * SERVERS_MAX), 1001)


class Crowd:
    """A machine with these processes, all of them MySQL servers."""

    def __init__(self, uids: dict[int, int]) -> None:
        self.listed = [
            Process(pid, 1, Path(f"/proc/{pid}"), "/usr/sbin/mysqld", False, (1, pid), uid)
            for pid, uid in sorted(uids.items())
        ]
        self.examined: list[int] = []

    def processes(self) -> Listed:
        return Listed(tuple(self.listed))

    def installed(self, patterns: Sequence[str]) -> list[tuple[Path, FileIdentity]]:  # noqa: ARG002
        return []

    def port_range(self) -> tuple[int, int]:
        return 32768, 60999

    def has(self, pid: int) -> bool:
        return any(process.pid == pid for process in self.listed)

    def examine(self, facts: Facts) -> Examined:
        self.examined.append(facts.pid)
        plain = Fact(False, "")
        if facts.any_protocol:
            return Examined("generic", ports=(facts.pid,), cpu_ticks=10_000 - facts.pid)
        resolution = Resolution(facts.exe_id)
        return Examined("mysql", "8.0", encryption=plain, thread_pool=plain, resolution=resolution)

    def examine_all(self, every: Sequence[Facts]) -> list[Examined]:
        return [self.examine(facts) for facts in every]


@pytest.fixture(autouse=True)
def asked_by_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qjoule.servers.discovery.asking_user", lambda: ITSELF)
    monkeypatch.setattr("qjoule.servers.generic.find.asking_user", lambda: ITSELF)


def test_one_users_fakes_leave_room_for_all_others() -> None:
    crowd = Crowd(FAKES | {900: 999, 901: 0, 902: 1002, 903: 1003})
    plan = build_plan(discover(host=crowd).servers, KERNEL)
    traced = [planned.server.tgids[0] for planned in plan.traced]
    assert traced[:2] == [900, 901]
    assert {902, 903} <= set(traced)
    assert len(traced) == SERVERS_MAX


def test_what_is_not_looked_at_is_said() -> None:
    crowd = Crowd(FAKES | {900: 0})
    found = discover(host=crowd)
    assert len(crowd.examined) == EXAMINED_MAX + 1
    assert found.unreadable == (
        "user 1001 runs 48 programs with names of servers: 16 are not looked at",
    )


def test_generic_servers_are_in_the_same_order() -> None:
    crowd = Crowd(FAKES | {900: 999, 902: 1002})
    found = [server.tgids[0] for server in find_generic([], itself=1, host=crowd)]
    assert found[:3] == [900, 100, 902]


def test_the_order_is_stable() -> None:
    pairs = [(0, "a"), (5, "b"), (0, "c"), (1001, "d"), (1001, "e"), (1002, "f"), (1000, "g")]
    ordered = fair(pairs, lambda pair: pair[0], 1000)
    assert "".join(name for _, name in ordered) == "abcdfeg"


@pytest.mark.parametrize(
    ("given", "expected"), [("1234", 1234), ("", 0), ("x", 0), ("9" * 50, 0), ("-1", 0)]
)
def test_who_asks(given: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", given)
    assert order.asking_user() == expected


def test_each_candidate_fails_alone(fake: FakeProc, toys: dict[str, Path], tmp_path: Path) -> None:
    damaged = tmp_path / "bad" / "postgres"
    damaged.parent.mkdir()
    damaged.write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 200)
    fake.add(100, str(damaged))
    fake.add(101, str(toys["mysqld"]))
    gone = tmp_path / "bad" / "mongod"
    shutil.copy(toys["mongod"], gone)
    fake.add(102, str(gone))
    found = discover(fake.tree, fake.host)
    assert {server.tgids for server in found.servers} == {(101,), (102,)}
    (line,) = found.unreadable
    assert line.startswith(f"process 100 ({damaged}): ")
    assert "\n" not in line


def test_what_nobody_thought_of_is_one_line_too(
    fake: FakeProc, toys: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(*_: object) -> None:
        raise RecursionError("a\nb")

    monkeypatch.setattr("qjoule.servers.mysql.settings.read_options", surprise)
    fake.add(100, str(toys["mysqld"]))
    fake.add(101, str(toys["postgres"]))
    found = discover(fake.tree, fake.host)
    assert [server.tgids for server in found.servers] == [(101,)]
    expected = f"process 100 ({toys['mysqld']}): it cannot be examined (RecursionError)"
    assert found.unreadable == (expected,)


def test_a_process_that_runs_another_executable_meanwhile(
    fake: FakeProc, toys: dict[str, Path]
) -> None:
    """Its files no longer belong to the executable that was listed."""
    entry = fake.add(100, str(toys["mysqld"]))
    before = facts_of(toys["postgres"], pid=100)
    for generic in (False, True):
        found = examine(
            DirectAccess(entry, fake.host), replace(before, any_protocol=generic, silent=True)
        )
        assert found == Examined(problem="it runs another executable now")
