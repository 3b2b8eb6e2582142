"""The agent's place in the plan, and what of it is installed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from qjoule.contract import Rung
from qjoule.errors import QjouleError
from qjoule.servers.agent import LIBRARY, Agent, agent_files, marker_probes, put_agents
from qjoule.servers.jvm_attach import CannotAttach, identity_of
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.plan import build_plan
from qjoule.servers.probe_site import SINGLE_STEPPED
from qjoule.servers.procfs import Process
from qjoule.servers.signatures import Role
from qjoule.servers.types import Fact, Flavour, Server

KERNEL = KernelFacts(recv_tracepoint=True, send_tracepoint=True, uprobes=True)
MARKED = Path("/proc/100/map_files/7f00-7f01")


def cassandra(tgid: int) -> Server:
    return Server(
        id=0,
        flavour=Flavour.CASSANDRA,
        version="5.0.9",
        exe_path=Path("/usr/bin/java"),
        exe_name="/usr/bin/java",
        exe_id=(1, 2),
        tgids=(tgid,),
        ports=(9042,),
        sockets=(),
        encryption=Fact(False, ""),
        thread_pool=Fact(True, ""),
    )


def agent(path: Path = MARKED) -> Agent:
    return Agent(path, marker_probes(agent_files()[-1]), os.open(os.devnull, os.O_RDONLY))


def test_a_server_with_an_agent_is_on_its_rung() -> None:
    plan = build_plan([cassandra(100)], KERNEL, agents={100: agent()})
    (planned,) = plan.traced
    assert planned.choice.rung is Rung.AGENT
    assert planned.choice.exact
    arguments = " ".join(plan.arguments())
    assert "--server 1:cassandra:agent:1:2" in arguments
    assert planned.library == str(MARKED)
    assert arguments.count("--probe 1:agent-") == 6


def test_servers_of_one_jvm_each_have_their_own_probes() -> None:
    other = Path("/proc/200/map_files/7f00-7f01")
    agents = {100: agent(), 200: agent(other)}
    plan = build_plan([cassandra(100), cassandra(200), cassandra(300)], KERNEL, agents=agents)
    words = plan.arguments()
    assert [one.library for one in plan.traced] == [str(MARKED), str(other), ""]
    assert sum(word.startswith("2:agent-") for word in words) == 6
    assert plan.traced[2].choice.rung is not Rung.AGENT


def test_an_agent_is_offered_where_there_is_none() -> None:
    (planned,) = build_plan([cassandra(100)], KERNEL).servers
    assert "--agent" in planned.choice.other


def test_markers_are_where_a_probe_is_cheap() -> None:
    probes = marker_probes(agent_files()[-1], client_tags=True)
    assert {probe.role for probe in probes} == {role for role in Role if role.startswith("agent-")}
    assert all(probe.site.cost is not SINGLE_STEPPED for probe in probes)


def test_markers_need_no_library() -> None:
    """The server may run in a container with another C library, or an older one."""
    with agent_files()[-1].open("rb") as stream:
        dynamic = ELFFile(stream).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        assert [t.entry.d_tag for t in dynamic.iter_tags() if t.entry.d_tag == "DT_NEEDED"] == []


def test_closing_an_agent_twice_closes_one_descriptor() -> None:
    read, write = os.pipe()
    twice = Agent(MARKED, (), write)
    twice.close()
    assert os.read(read, 1) == b""
    reused = os.dup(read)
    twice.close()
    os.fstat(reused)
    os.close(reused)
    os.close(read)


@pytest.mark.parametrize("servers", [[], [replace(cassandra(1), tgids=())]])
def test_an_agent_needs_a_cassandra_that_runs(servers: list[Server], tmp_path: Path) -> None:
    with pytest.raises(QjouleError, match="--agent is for Cassandra, and none runs"):
        put_agents(servers, proc=tmp_path)


def test_an_agent_is_for_the_processes_that_were_named(tmp_path: Path) -> None:
    with pytest.raises(QjouleError, match="none runs"):
        put_agents([cassandra(100)], {200}, proc=tmp_path)


def test_a_server_that_has_ended_meanwhile(tmp_path: Path) -> None:
    with pytest.raises(QjouleError, match="process 100 has ended"):
        put_agents([cassandra(100)], proc=tmp_path)


@pytest.mark.parametrize(
    "status", ["", "Pid:\n", "Pid:\t7\nUid:\t0\n", "Pid:\t7\nUid:\tx y\nGid:\t0 0\n"]
)
def test_a_status_that_makes_no_sense(tmp_path: Path, status: str) -> None:
    (tmp_path / "status").write_text(status)
    with pytest.raises(CannotAttach, match="has ended"):
        identity_of(Process(7, 1, tmp_path, "/usr/bin/java", False, (1, 2)))


def test_the_agent_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    with pytest.raises(QjouleError, match="not installed"):
        agent_files()
    assert LIBRARY.endswith(".so")
