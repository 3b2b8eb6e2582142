# SPDX-License-Identifier: Apache-2.0
"""One user's programs beside another's servers: each fails alone, and none uses up the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.servers import processes as order
from qjoule.servers.access import FileIdentity
from qjoule.servers.choice import KernelFacts
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.discovery import discover
from qjoule.servers.examine import examine
from qjoule.servers.generic import find_generic
from qjoule.servers.hosts import Listed
from qjoule.servers.plan import SERVERS_MAX, build_plan
from qjoule.servers.processes import EXAMINED_MAX, Owner, Process, Trust, owner_of
from qjoule.servers.resolution import Resolution
from qjoule.servers.types import Examined, Fact, Facts
from servers.fake_proc import FakeProc
from servers.hostile import facts_of

KERNEL = KernelFacts(reads=True, sends=True, uprobes=True)
ITSELF = 1000
#: (uid, unit) by pid: many processes of an ordinary user, and of a web server's account.
FAKES = dict.fromkeys(range(1000, 1048), (1001, ""))
WEB = dict.fromkeys(range(2000, 2048), (33, "apache2"))


class Crowd:
    """A machine with these processes, all of them MySQL servers."""

    def __init__(self, owners: dict[int, tuple[int, str]]) -> None:
        self.listed = [
            Process(
                *(pid, 1, Path(f"/proc/{pid}"), "/usr/sbin/mysqld", (1, pid), uid),
                f"0::/system.slice/{unit}.service" if unit else "0::/",
            )
            for pid, (uid, unit) in sorted(owners.items())
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
    monkeypatch.setattr("qjoule.servers.generic.asking_user", lambda: ITSELF)


def test_one_owners_fakes_leave_room_for_all_others() -> None:
    real = {pid: (110 + pid, f"mysql@{pid}") for pid in range(3000, 3010)}
    crowd = Crowd(FAKES | WEB | real | {3990: (0, ""), 3992: (1002, ""), 3993: (999, "")})
    discovery = discover(host=crowd)
    every = [server.tgids[0] for server in discovery.servers]
    traced = [planned.server.tgids[0] for planned in build_plan(discovery.servers, KERNEL).traced]
    assert traced[0] == 3990, "root's first"
    assert set(traced[1:12]) == {*real, 2000}, "one of each service"
    assert len(traced) == SERVERS_MAX
    strangers = [pid for pid in every if pid in FAKES or pid > 3990]
    assert strangers[:4] == [3993, 1000, 3992, 1001], "a service's account first, one of each"
    assert len(crowd.examined) == 2 * EXAMINED_MAX + 13
    more = f"runs 48 programs with names of servers: {48 - EXAMINED_MAX} are not looked at"
    assert discovery.unreadable == (f"apache2.service {more}", f"user 1001 {more}")
    generic = [server.tgids[0] for server in find_generic([], itself=1, host=crowd)]
    assert generic[0] == 3990 and set(generic[1:12]) == {*real, 2000}


ID = "3f2a9c1b7d20" + "0" * 52
STRANGER = Trust.STRANGER


@pytest.mark.parametrize(
    ("uid", "groups", "owner"),
    [
        (0, "", Owner()),
        (0, "0::/user.slice/user-1000.slice/session-2.scope", Owner()),  # sudo
        (0, "0::/system.slice/mariadb.service", Owner()),
        (0, f"0::/system.slice/docker-{ID}.scope", Owner(0, f"container {ID}", STRANGER)),
        (33, f"4:memory:/docker/{ID}\n0::/", Owner(0, f"container {ID}", STRANGER)),
        (0, "0::/lxc.payload.a/system.slice/b.service", Owner(0, "container a", STRANGER)),
        (0, "0::/machine.slice/b.service", Owner(0, "", STRANGER)),
        (0, "0::/../../x/system.slice/b.service", Owner(0, "", STRANGER)),
        (112, "0::/../../system.slice/b.service", Owner(0, "b.service", Trust.SERVICE)),
        (
            112,
            "0::/system.slice/system-pg.slice/pg@15.service/x.service",
            Owner(0, "pg@15.service", Trust.SERVICE),
        ),
        (112, "1:name=systemd:/user.slice\n0::/system.slice/b.service", Owner(112, "", STRANGER)),
        (112, "0::/", Owner(112, "", STRANGER)),
        # Whatever ids and names of groups a user chooses.
        (100_001, f"0::/user.slice/user-1001.slice/x/{ID}", Owner(1001, "", STRANGER)),
        (1001, "0::/user.slice/user-1001.slice/system.slice/b.service", Owner(1001, "", STRANGER)),
    ],
)
def test_an_owner_is_known_by_what_only_root_chooses(uid: int, groups: str, owner: Owner) -> None:
    assert owner_of(uid, groups) == owner


@pytest.mark.parametrize(("sudo_uid", "asking"), [("1234", 1234), ("9" * 50, 0), ("-1", 0)])
def test_the_user_who_asks_is_sudos(
    sudo_uid: str, asking: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", sudo_uid)
    assert order.asking_user() == asking


def test_each_candidate_fails_alone_in_one_line(
    fake: FakeProc, toys: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(*_: object) -> None:
        raise RecursionError("a\nb")

    monkeypatch.setattr("qjoule.servers.mysql.settings.read_options", surprise)
    damaged = tmp_path / "bad" / "postgres"
    damaged.parent.mkdir()
    damaged.write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 200)
    for pid, path in enumerate((damaged, toys["mysqld"], toys["postgres"]), start=100):
        fake.add(pid, str(path))
    discovery = discover(fake.tree, fake.host)
    assert [server.tgids for server in discovery.servers] == [(102,)]
    line, surprised = discovery.unreadable
    assert line.startswith(f"process 100 ({damaged}): ")
    assert "\n" not in line
    expected = f"process 101 ({toys['mysqld']}): it cannot be examined (RecursionError)"
    assert surprised == expected


def test_a_process_that_runs_another_executable_meanwhile(
    fake: FakeProc, toys: dict[str, Path]
) -> None:
    """The process's files no longer belong to the executable that was listed."""
    entry = fake.add(100, str(toys["mysqld"]))
    before = facts_of(toys["postgres"], pid=100)
    for generic in (False, True):
        examined = examine(
            DirectAccess(entry, fake.host), replace(before, any_protocol=generic, silent=True)
        )
        assert examined == Examined(problem="it runs another executable now")
