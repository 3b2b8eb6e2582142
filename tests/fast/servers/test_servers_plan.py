# SPDX-License-Identifier: Apache-2.0
"""The attach plan as arguments for the tracer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.contract import Rung
from qjoule.errors import QjouleError
from qjoule.servers.elf import open_executable
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.mysql.signatures import CHILDREN, CLIENTS, DATABASES, LOGS, Role
from qjoule.servers.plan import SERVERS_MAX, PlannedServer, build_plan
from qjoule.servers.types import Fact, Server
from qjoule.session.targets import left_out
from servers.examined import examined
from servers.toy_elf import MARIADB_10_11, MYSQL_8, POSTGRES, strip, toy_server

HANDLE = 7  #: the root part's handle number of every executable here
KERNEL = KernelFacts(reads=True, sends=True, uprobes=True)
FULL = ("-O0", "-fcf-protection=full")


def describe(
    id: int,
    flavour: str,
    path: Path,
    *,
    version: str = "",
    tgids: tuple[int, ...] = (100,),
    encryption: bool | None = False,
    pool: bool | None = False,
) -> Server:
    status = path.stat()
    server = Server(
        id=id,
        flavour=flavour,
        version=version,
        exe_path=path,
        exe_name=str(path),
        exe_id=(status.st_dev, status.st_ino),
        tgids=tgids,
        ports=(),
        sockets=(),
        encryption=Fact(encryption, "somewhere"),
        thread_pool=Fact(pool, "somewhere"),
        handle=HANDLE,
    )
    return examined(server)


def executable_of(path: Path) -> str:
    """The executable in the syntax of `--server`."""
    status = path.stat()
    return f"{status.st_dev}:{status.st_ino}"


def site_of(path: Path, name: str, further: int = 0) -> str:
    """The site in the syntax of `--probe`; every function here begins with `push %rbp`."""
    executable = open_executable(path)
    (symbol,) = executable.functions(name)
    offset = executable.file_offset(symbol.vaddr)
    assert offset is not None
    return f"{HANDLE}:{offset + further:#x}:55"


def pairs(arguments: list[str]) -> Iterable[str]:
    return [f"{name} {value}" for name, value in zip(arguments[::2], arguments[1::2], strict=True)]


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("plan: toys")  # a path with a space and a colon
    return {
        "mariadb": toy_server(base / "mariadbd", [MARIADB_10_11], flags=("-O0",)),
        "mysql": toy_server(base / "mysqld", [MYSQL_8], flags=FULL),
        "postgres": toy_server(base / "postgres", POSTGRES, flags=FULL),
    }


def test_the_whole_plan(toys: dict[str, Path]) -> None:
    maria, mysql, postgres = toys["mariadb"], toys["mysql"], toys["postgres"]
    servers = [
        describe(1, "mariadb", maria, tgids=(100,)),
        describe(2, "mysql", mysql, encryption=True, tgids=(200,)),
        describe(3, "postgres", postgres, version="15.20", tgids=(300, 301), encryption=True),
    ]
    assert pairs(build_plan(servers, KERNEL).arguments()) == [
        f"--server 1:mysql:socket:{executable_of(maria)}",
        "--running 1:100",
        f"--server 2:mysql:symbol:{executable_of(mysql)}",
        "--running 2:200",
        f"--probe 2:mysql-begin-thd-first:{site_of(mysql, MYSQL_8, 4)}",
        f"--probe 2:mysql-end:{site_of(mysql, MYSQL_8, 4)}",
        "--fact 2:pool:0x1",
        f"--server 3:postgres:symbol:{executable_of(postgres)}",
        "--running 3:300",
        f"--probe 3:postgres-activity:{site_of(postgres, 'pgstat_report_activity', 4)}",
        f"--probe 3:postgres-portal-run:{site_of(postgres, 'PortalRun', 4)}",
        f"--probe 3:postgres-failed:{site_of(postgres, 'PortalErrorCleanup', 4)}",
        f"--probe 3:postgres-launch-workers:{site_of(postgres, 'LaunchParallelWorkers', 4)}",
        f"--probe 3:postgres-join-leader:{site_of(postgres, 'BecomeLockGroupMember', 4)}",
        "--fact 3:idle:0x1",
        "--fact 3:running:0x2",
        "--fact 3:idle-in-transaction:0x3",
        "--fact 3:fastpath:0x4",
        "--fact 3:aborted:0x5",
    ]


def test_a_pool_and_a_plain_server_of_one_file(toys: dict[str, Path]) -> None:
    path = toys["mariadb"]
    servers = [
        describe(1, "mariadb", path, tgids=(100,)),
        describe(2, "mariadb", path, tgids=(200,), pool=True),
    ]
    assert pairs(build_plan(servers, KERNEL).arguments()) == [
        f"--server 1:mysql:symbol:{executable_of(path)}",
        "--running 1:100",
        f"--probe 1:mysql-begin-command-first:{site_of(path, MARIADB_10_11)}",
        f"--probe 1:mysql-end:{site_of(path, MARIADB_10_11)}",
        "--fact 1:pool:0x1",
        f"--server 2:mysql:symbol:{executable_of(path)}",
        "--running 2:200",
        "--fact 2:pool:0x1",
    ]
    assert "runs the same executable" in build_plan(servers, KERNEL).servers[0].choice.why


def test_children_are_probed_only_if_asked_for(tmp_path: Path) -> None:
    begin, text = (
        CHILDREN[Role.CHILD_BEGIN],
        CHILDREN[Role.CHILD_TEXT],
    )
    path = toy_server(tmp_path / "mysqld", [MYSQL_8, begin, text], flags=("-O0",))
    server = describe(1, "mysql", path)
    plain = [f"--server 1:mysql:socket:{executable_of(path)}", "--running 1:100"]
    assert pairs(build_plan([server], KERNEL).arguments()) == plain
    assert pairs(build_plan([server], KERNEL, children=True).arguments()) == [
        *plain,
        f"--probe 1:mysql-child-begin:{site_of(path, begin)}",
        f"--probe 1:mysql-child-text:{site_of(path, text)}",
        f"--probe 1:mysql-child-end:{site_of(path, begin)}",
    ]


def _besides_memory(planned: PlannedServer) -> tuple[str, ...]:
    """Its notes, without those on what is read in memory: toys keep no sessions."""
    unread = ("before tracing", "shapes end where", "no session has an application")
    return tuple(note for note in planned.notes if not any(part in note for part in unread))


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("change", DATABASES)
def test_names_are_probed_where_queries_are(
    log: tuple[str, Role], change: str, tmp_path: Path
) -> None:
    functions = [MYSQL_8, CLIENTS[1], log[0], change]
    path = toy_server(tmp_path / "mysqld", functions, flags=("-O0",))
    server = describe(1, "mysql", path)
    (planned,) = build_plan([server], KERNEL).servers
    assert (planned.probes, _besides_memory(planned)) == ((), ())
    plan = build_plan([replace(server, encryption=Fact(True, "somewhere"))], KERNEL)
    assert _besides_memory(plan.servers[0]) == ()
    names = [
        f"--probe 1:mysql-client:{site_of(path, CLIENTS[1])}",
        f"--probe 1:{log[1]}:{site_of(path, log[0])}",
        f"--probe 1:mysql-database:{site_of(path, change)}",
        f"--probe 1:mysql-database-end:{site_of(path, change)}",
    ]
    begin = f"--probe 1:mysql-begin-thd-first:{site_of(path, MYSQL_8)}"
    assert list(pairs(plan.arguments()))[2:] == [begin, *names, "--fact 1:next-read:0x1"]


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("pool", [True, False])
def test_reads_of_sockets_replace_the_probe_on_the_end(
    reads: bool, pool: bool, tmp_path: Path
) -> None:
    """Not if a thread pool reads on another thread, or the kernel does not show reads."""
    functions = [MYSQL_8, CLIENTS[1], LOGS[0][0], DATABASES[0]]
    path = toy_server(tmp_path / "mysqld", functions, flags=("-O0",))
    server = describe(1, "mysql", path, encryption=True, pool=pool)
    (planned,) = build_plan([server], replace(KERNEL, reads=reads)).servers
    assert planned.choice.rung is Rung.SYMBOL
    replaced = reads and not pool
    assert planned.next_read is replaced
    assert (Role.END in {probe.role for probe in planned.probes}) is not replaced
    begins = [probe.site.cost for probe in planned.probes if probe.symbol.name == MYSQL_8]
    expected = begins[0].entry_ns if replaced else begins[0].both_ns
    assert planned.boundary_cost_ns == expected


def test_two_functions_of_one_name_are_none(tmp_path: Path) -> None:
    path = toy_server(tmp_path / "mysqld", [MYSQL_8, LOGS[0][0], *DATABASES])
    (planned,) = build_plan([describe(1, "mysql", path, encryption=True)], KERNEL).servers
    assert [probe.role for probe in planned.probes] == ["mysql-begin-thd-first", "mysql-end"]
    (said,) = _besides_memory(planned)
    assert "users and databases of its sessions are not known: two" in said


def test_a_server_without_the_functions_for_names_says_so(toys: dict[str, Path]) -> None:
    server = describe(1, "mysql", toys["mysql"], encryption=True)
    (planned,) = build_plan([server], KERNEL).traced
    (said,) = _besides_memory(planned)
    assert "databases of its sessions are not known: no general_log_print" in said


def test_a_server_without_the_functions_for_children_is_traced_and_says_so(
    toys: dict[str, Path],
) -> None:
    plan = build_plan([describe(1, "mysql", toys["mysql"])], KERNEL, children=True)
    (planned,) = plan.traced
    assert planned.probes == ()
    assert "statements of procedures are not told apart: no _ZN13sp_instr" in planned.notes[-1]
    assert any("--children" in words for words in left_out(plan, children=True))
    assert list(left_out(plan)) == []


def test_postgres_on_the_socket_rung_still_joins_workers(toys: dict[str, Path]) -> None:
    path = toys["postgres"]
    (planned,) = build_plan([describe(1, "postgres", path, version="15.2")], KERNEL).servers
    assert planned.choice.rung is Rung.SOCKET
    assert [probe.role for probe in planned.probes] == [
        "postgres-launch-workers",
        "postgres-join-leader",
    ]
    texts = {"statements", "last-bucket", "plan", "plan-text"}
    ids = {"portal-plans", "query-id"}
    assert set(planned.facts) == {"send-buffer", "conforming", "application", *texts, *ids}
    assert planned.boundary_cost_ns == 0


def test_postgres_without_the_functions_for_workers(tmp_path: Path) -> None:
    path = toy_server(tmp_path / "postgres", POSTGRES[:3], flags=FULL)
    server = describe(1, "postgres", path, version="15.2", encryption=True)
    (planned,) = build_plan([server], KERNEL).servers
    roles = [probe.role for probe in planned.probes]
    assert roles == ["postgres-activity", "postgres-portal-run", "postgres-failed"]
    names, replies, prepared, workers, tags, portals = planned.notes
    assert "user and database are not known" in names
    assert "statements prepared before tracing have no text" in prepared
    assert "have no tags: no MyProcPort" in tags
    assert "each part that is fetched of a portal counts" in portals
    assert "errors and rows of its queries are not known" in replies
    assert "parallel workers count as server background" in workers


@pytest.mark.parametrize("version", ["", "12.3", "19.0"])
def test_postgres_of_a_version_that_is_not_known(toys: dict[str, Path], version: str) -> None:
    server = describe(1, "postgres", toys["postgres"], version=version, encryption=True)
    (planned,) = build_plan([server], KERNEL).servers
    assert (planned.choice.rung, planned.choice.exact) == (Rung.SOCKET, False)
    with pytest.raises(QjouleError, match="backend states"):
        build_plan([server], KERNEL, Rung.SYMBOL)


def test_a_stripped_server_that_needs_symbols_is_left_out(tmp_path: Path) -> None:
    path = strip(toy_server(tmp_path / "mysqld", [MYSQL_8], exported=False))
    plan = build_plan([describe(1, "mysql", path, pool=True)], KERNEL)
    assert plan.arguments() == []
    assert plan.traced == ()
    assert "no dispatch_command" in plan.servers[0].choice.why


def test_an_executable_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "mysqld"
    path.write_bytes(b"\x7fELF" + b"\0" * 100)
    plan = build_plan([describe(1, "mysql", path, encryption=True)], KERNEL)
    assert plan.servers[0].choice.rung is Rung.SOCKET  # plain sessions need no symbols of the file
    assert not plan.servers[0].choice.exact
    server = describe(1, "mysql", tmp_path, pool=True)
    assert build_plan([server], KERNEL).arguments() == []


def test_pids_choose_servers(toys: dict[str, Path]) -> None:
    servers = [
        describe(1, "mariadb", toys["mariadb"], tgids=(100,)),
        describe(2, "mysql", toys["mysql"], tgids=(200,)),
        describe(3, "postgres", toys["postgres"], tgids=()),
    ]
    plan = build_plan(servers, KERNEL, pids=[200])
    assert [(planned.server.tgids, planned.server.id) for planned in plan.servers] == [((200,), 1)]
    assert len(build_plan(servers, KERNEL, pids=[]).traced) == 3
    with pytest.raises(QjouleError, match="process 4711 is no database server"):
        build_plan(servers, KERNEL, pids=[100, 4711])


def test_costs_follow_the_site(toys: dict[str, Path]) -> None:
    servers = [
        describe(1, "mysql", toys["mysql"], encryption=True),
        describe(2, "postgres", toys["postgres"], version="15.2", encryption=True),
    ]
    mysql, postgres = build_plan(servers, KERNEL).servers
    assert mysql.boundary_cost_ns == 1160  # push: entry and return
    assert postgres.boundary_cost_ns == 3 * 667  # running, idle, and the portal


def test_sessions_that_no_probe_sees_are_named(toys: dict[str, Path]) -> None:
    server = replace(describe(1, "mysql", toys["mysql"]), ports=(3306, 33060))
    (planned,) = build_plan([server], KERNEL).servers
    assert "X Protocol" in planned.choice.why


def test_ids_have_no_gaps(toys: dict[str, Path], tmp_path: Path) -> None:
    """The tracer numbers them itself."""
    stripped = strip(toy_server(tmp_path / "mysqld", [MYSQL_8], exported=False))
    servers = [
        describe(1, "mysql", stripped, tgids=(100,), pool=True),
        describe(2, "mariadb", toys["mariadb"], tgids=(200,)),
        describe(3, "mysql", stripped, tgids=(300,), pool=True),
        describe(4, "mysql", toys["mysql"], tgids=()),
    ]
    plan = build_plan(servers, KERNEL)
    assert [(planned.server.id, planned.traced) for planned in plan.servers] == [
        (0, False),
        (1, True),
        (0, False),
        (2, True),
    ]
    assert [x for x in pairs(plan.arguments()) if "--server" in x or "--running" in x] == [
        f"--server 1:mysql:socket:{executable_of(toys['mariadb'])}",
        "--running 1:200",
        f"--server 2:mysql:socket:{executable_of(toys['mysql'])}",
    ]


def test_more_servers_than_the_tracer_has_room_for(toys: dict[str, Path]) -> None:
    servers = [describe(i, "mariadb", toys["mariadb"], tgids=(100 + i,)) for i in range(1, 19)]
    plan = build_plan(servers, KERNEL)
    assert len(plan.traced) == SERVERS_MAX
    assert "choose with --pid" in plan.servers[-1].choice.why
    header = Path(__file__).parents[3] / "bpf" / "shared.h"
    assert f"#define QJ_MAX_SERVERS {SERVERS_MAX}\n" in header.read_text()


def test_no_servers() -> None:
    assert build_plan([], KERNEL).arguments() == []
