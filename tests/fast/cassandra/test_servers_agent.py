# SPDX-License-Identifier: Apache-2.0
"""The agent in the attach plan, and what is installed of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from qjoule.contract import Rung
from qjoule.errors import QjouleError
from qjoule.servers.agent import Agent
from qjoule.servers.agents import put_agents
from qjoule.servers.cassandra.agent import agent_files, marker_probes
from qjoule.servers.cassandra.signatures import Role
from qjoule.servers.jvm.agent_loader import LIBRARY
from qjoule.servers.jvm.attach import CannotAttach
from qjoule.servers.jvm.process import Identity, ended, handles_quit, identity_of
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.plan import build_plan
from qjoule.servers.probe_site import SINGLE_STEPPED
from qjoule.servers.types import Fact, Server

KERNEL = KernelFacts(reads=True, sends=True, uprobes=True)
MARKED = "/tmp/qjoule-1/libqjoule_agent.so (deleted)"


def cassandra(tgid: int) -> Server:
    java, fact = Path("/usr/bin/java"), Fact(False, "")
    tgids = (tgid,) if tgid else ()
    return Server(
        *(0, "cassandra", "5.0.9", java, str(java), (1, 2), tgids, (9042,), (), fact),
        thread_pool=Fact(True, ""),
    )


def agent(handle: int = 7) -> Agent:
    lease = os.open(os.devnull, os.O_RDONLY)
    return Agent(MARKED, handle, marker_probes(agent_files()[-1]), lease)


def nobody_is_reached(pid: int, _exe_id: tuple[int, int]) -> NoReturn:
    raise ended(pid)


def test_a_server_with_an_agent_is_on_its_rung() -> None:
    plan = build_plan([cassandra(100)], KERNEL, agents={100: agent()})
    (planned,) = plan.traced
    assert planned.choice.rung is Rung.AGENT
    assert planned.choice.exact
    arguments = " ".join(plan.arguments())
    assert "--server 1:cassandra:agent:1:2" in arguments
    assert planned.library == str(MARKED)
    assert arguments.count("--probe 1:cassandra-") == 6
    for probe in planned.probes:
        where = f"7:{probe.site.offset:#x}:{probe.code.hex()}"
        assert f"--probe 1:{probe.role}:{where}" in arguments


def test_servers_of_one_jvm_each_have_their_own_probes() -> None:
    agents = {100: agent(), 200: agent(8)}
    plan = build_plan([cassandra(100), cassandra(200), cassandra(300)], KERNEL, agents=agents)
    words = plan.arguments()
    assert [one.library_handle for one in plan.traced] == [7, 8, 0]
    assert sum(word.startswith("2:cassandra-") and ":8:0x" in word for word in words) == 6
    assert plan.traced[2].choice.rung is not Rung.AGENT
    assert "--agent" in plan.traced[2].choice.other


def test_markers_are_where_a_probe_is_cheap() -> None:
    probes = marker_probes(agent_files()[-1], client_tags=True)
    assert {probe.role for probe in probes} == set(Role)
    assert all(probe.site.cost is not SINGLE_STEPPED for probe in probes)


def test_markers_need_no_library() -> None:
    """The server may run in a container with another C library, or an older one."""
    with agent_files()[-1].open("rb") as stream:
        dynamic = ELFFile(stream).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        assert [t.entry.d_tag for t in dynamic.iter_tags() if t.entry.d_tag == "DT_NEEDED"] == []


def test_closing_an_agent_twice_closes_one_descriptor() -> None:
    read, write = os.pipe()
    twice = Agent(MARKED, 7, (), write)
    twice.close()
    assert os.read(read, 1) == b""
    reused = os.dup(read)
    twice.close()
    os.fstat(reused)
    os.close(reused)
    os.close(read)


@pytest.mark.parametrize(
    ("servers", "pids", "why"),
    [
        ([], None, "--agent is for Cassandra, and none runs"),
        ([cassandra(0)], None, "--agent is for Cassandra, and none runs"),
        ([cassandra(100)], {200}, "none runs"),
        ([cassandra(100)], None, "process 100 has ended"),
    ],
)
def test_an_agent_needs_a_cassandra_that_runs(
    servers: list[Server], pids: set[int] | None, why: str
) -> None:
    with pytest.raises(QjouleError, match=why):
        put_agents(servers, nobody_is_reached, pids)


@pytest.mark.parametrize(
    ("uids", "of_root"),
    [("5 5 5 5", False), ("0 5 5 5", True), ("5 5 0 5", True), ("5 5 5 0", True)],
)
def test_who_a_jvm_is(uids: str, of_root: bool) -> None:
    status = f"Pid:\t7\nUid:\t{uids}\nGid:\t6 8 6 6\nNSpid:\t7\t3\t1\n"
    assert identity_of(7, status) == Identity(5, 8, 1, of_root)
    for damaged in ("", "Pid:\t7\nUid:\t0\n", "Pid:\t7\nUid:\tx y\nGid:\t0 0\n"):
        with pytest.raises(CannotAttach, match="has ended"):
            identity_of(7, damaged)


@pytest.mark.parametrize(("caught", "handled"), [("4", True), ("3", False), ("8", False)])
def test_a_signal_that_would_end_a_jvm(caught: str, handled: bool) -> None:
    assert handles_quit(f"Pid:\t7\nSigCgt:\t000000000000000{caught}\n") == handled
    assert not handles_quit("")


def test_the_agent_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("qjoule.installed.PLACES", (tmp_path,))
    with pytest.raises(QjouleError, match="not installed"):
        agent_files()
    assert LIBRARY.endswith(".so")
