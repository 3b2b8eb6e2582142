# SPDX-License-Identifier: Apache-2.0
"""The attach mode of a server and its probes, where tests/fast/golden/plans.json does not show
them."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.machine.kernel import read_kernel_facts
from qjoule.root_part.host import with_handles
from qjoule.root_part.protocol import Kind
from qjoule.servers.attach_plan import AttachPlan, PlannedServer
from qjoule.servers.choice import KernelFacts, with_hidden
from qjoule.servers.elf import open_executable
from qjoule.servers.mysql.support import CHILDREN, CLIENTS, DATABASES, LOGS, Role
from qjoule.servers.plan import SERVERS_MAX, build_plan
from qjoule.servers.processes import Owner, Trust
from qjoule.servers.registered import choose_attach_mode
from qjoule.servers.types import Examined, Fact, Server
from qjoule.session import follow
from qjoule.session.follow import Following
from qjoule.session.targets import left_out
from servers.fake_proc import examined
from servers.toy_elf import MYSQL_8, POSTGRES, toy_server

HANDLE = 7  #: the root part's handle number of every executable here
KERNEL = KernelFacts(reads=True, sends=True, uprobes=True)
OLD_KERNEL = KernelFacts(reads=False, sends=False, uprobes=True)
FULL = ("-O0", "-fcf-protection=full")


def server(
    path: Path = Path("/usr/sbin/mysqld"),
    flavour: str = "mysql",
    *,
    tgids: tuple[int, ...] = (100,),
    encryption: bool | None = False,
    pool: bool | None = False,
    **fields: Any,
) -> Server:
    """A server; examined if its executable is there."""
    status = path.stat() if path.exists() else None
    described = Server(
        *(1, flavour, fields.pop("version", ""), path, str(path)),
        (status.st_dev, status.st_ino) if status else (1, 1),
        *(tgids, fields.pop("ports", (3306,)), fields.pop("sockets", ())),
        encryption=Fact(encryption, "ssl-cert: /etc/my.cnf"),
        thread_pool=Fact(pool, "thread-handling"),
        handle=HANDLE,
    )
    return examined(described) if status else described


def site_of(path: Path, name: str) -> str:
    """The site in the syntax of `--probe`; every function here begins with `push %rbp`."""
    executable = open_executable(path)
    (symbol,) = executable.functions(name)
    return f"{HANDLE}:{executable.file_offset(symbol.vaddr):#x}:55"


def pairs(arguments: list[str]) -> Iterable[str]:
    return [f"{name} {value}" for name, value in zip(arguments[::2], arguments[1::2], strict=True)]


def probes_of(arguments: list[str]) -> list[str]:
    return [pair for pair in pairs(arguments) if pair.startswith("--probe")]


@pytest.fixture(scope="module")
def mysqld(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_server(tmp_path_factory.mktemp("a: b") / "mysqld", [MYSQL_8], flags=FULL)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_server(tmp_path_factory.mktemp("toys") / "postgres", POSTGRES, flags=FULL)


# ---- the attach mode
# ------------------------------------------------------------------------------------


def test_a_wanted_attach_mode_is_refused_only_to_what_runs() -> None:
    """The server is left out, and the others go on; but not if the user named it, or there is no
    other."""
    plain, pooled = server(), server(Path("/opt/mysqld"), tgids=(200,), pool=True, ports=(1,))
    plan = build_plan([pooled, plain], KERNEL, AttachMode.SOCKET)
    assert [planned.server.tgids for planned in plan.traced] == [(100,)]
    assert list(left_out(plan)) == [
        "left out: mysql:1 (cannot use the socket mode: a thread pool moves queries between "
        "threads (thread-handling))"
    ]
    refused = "mysql:1 cannot use the socket mode: .*; leave out --attach"
    for servers, pids in ([pooled, plain], [100, 200]), ([pooled], None):
        with pytest.raises(QjouleError, match=refused):
            build_plan(servers, KERNEL, AttachMode.SOCKET, pids)
    installed = choose_attach_mode(server(pool=None, tgids=()), KERNEL, "", AttachMode.SOCKET)
    assert (installed.attach_mode, installed.exact) == (AttachMode.NONE, False)
    assert "thread pool" in installed.why


def test_the_socket_attach_mode_where_it_is_possible(mysqld: Path, postgres: Path) -> None:
    """The agent's lowest level: a server that cannot have it keeps its probes."""
    pooled = server(mysqld, tgids=(200,), pool=True)
    plain = server(postgres, "postgres", encryption=True, version="15.20")
    plan = build_plan([pooled, plain], KERNEL, AttachMode.SOCKET, fall_back=True)
    assert [planned.choice.attach_mode for planned in plan.traced] == [
        AttachMode.SYMBOL,
        AttachMode.SOCKET,
    ]


# ---- servers of one file -------------------------------------------------------------------------

USER = Owner(1001, "", Trust.STRANGER)
OTHER = Owner(1002, "", Trust.STRANGER)
UNIT = Owner(0, "mysql.service", Trust.SERVICE)


@pytest.mark.parametrize("owner", [UNIT, OTHER])
@pytest.mark.parametrize("pool", [False, True])
def test_a_strangers_server_does_not_get_probes_into_anothers(
    mysqld: Path, owner: Owner, pool: bool
) -> None:
    own = replace(server(mysqld), owner=owner)
    needing = server(mysqld, tgids=(200,), ports=(3307,), encryption=not pool, pool=pool)
    theirs = replace(needing, owner=USER)
    plan = build_plan([own, theirs], KERNEL)
    assert [planned.choice.attach_mode for planned in plan.servers] == [
        AttachMode.SOCKET,
        plan.servers[1].choice.attach_mode,
    ]
    assert plan.servers[1].choice.attach_mode is (AttachMode.NONE if pool else AttachMode.SOCKET)
    assert probes_of(plan.arguments()) == []
    why = plan.servers[1].choice.why + plan.servers[1].choice.other
    assert f"mysql:3306 ({owner}) runs the same executable and does without probes" in why
    for first, second, pids in (
        (own, replace(needing, owner=owner), None),
        (own, theirs, [100, 200]),
    ):
        both = build_plan([first, second], KERNEL, pids=pids)
        assert {planned.choice.attach_mode for planned in both.traced} == {AttachMode.SYMBOL}


@pytest.mark.parametrize("owner", [UNIT, USER])
def test_sessions_that_were_hidden_get_their_server_probes_unless_others_do_without(
    mysqld: Path, owner: Owner
) -> None:
    own = replace(server(mysqld, tgids=(200,), ports=(3307,)), owner=owner)
    theirs = replace(server(mysqld), owner=OTHER)
    hidden = [(str(owner), "mysql:3307"), (str(owner), "mysql:3306")]
    for others, attach_mode in (
        ([theirs], AttachMode.SYMBOL if owner is UNIT else AttachMode.SOCKET),
        ([], AttachMode.SYMBOL),
    ):
        found_servers = [*others, own]
        before = build_plan(found_servers, KERNEL).traced[-1].choice
        assert before.attach_mode is AttachMode.SOCKET and bool(before.no_symbol) is (
            attach_mode is AttachMode.SOCKET
        )
        after = [
            with_hidden(each_server, each_server.label, hidden) for each_server in found_servers
        ]
        assert {planned.choice.attach_mode for planned in build_plan(after, KERNEL).traced} == {
            attach_mode
        }


class Followed:
    """Has servers followed, without a root part."""

    def __init__(self, plan: AttachPlan, monkeypatch: pytest.MonkeyPatch) -> None:
        self.following = Following(plan, KERNEL, chosen=False, attach_mode=None)
        self.asked: list[Kind] = []
        monkeypatch.setattr(follow, "_examined", lambda *_: (None, None))
        monkeypatch.setattr(follow, "_started", lambda _pid: 1)
        monkeypatch.setattr(follow, "_write_entry", lambda *_: None)
        monkeypatch.setattr(follow, "ask", lambda _root, kind, **_: self.asked.append(kind))
        self._patch = monkeypatch

    def follow(self, server_: Server) -> str:
        """Why it is not followed, or nothing."""
        self.asked.clear()
        self._patch.setattr(follow, "server_of", lambda *_: server_)
        root = cast(socket.socket, None)
        *_, last = self.following.follow(root, server_.tgids[0], last=True)
        return "" if last.attached else last.why


def test_a_server_that_is_followed_does_not_get_probes_into_anothers_either(
    mysqld: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(server(mysqld), owner=UNIT)
    path = toy_server(tmp_path / "mysqld", [MYSQL_8], flags=FULL)
    loads_probes = server(path, tgids=(101,), ports=(3333,), encryption=True)
    followed = Followed(build_plan([own, loads_probes], KERNEL), monkeypatch)
    new = server(mysqld, tgids=(200,), ports=(3307,), encryption=True)
    assert followed.follow(replace(new, owner=USER, uid=1001)) == ""
    assert followed.asked == [Kind.DONE]
    assert followed.follow(replace(new, owner=UNIT, tgids=(201,), uid=999)) == ""
    assert Kind.ATTACH in followed.asked


def test_strangers_leave_places_to_services(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Followed(build_plan([server()], KERNEL), monkeypatch)

    def new(number: int, owner: Owner) -> Server:
        path = Path(f"/opt/{number}/mysqld")
        own = server(path, tgids=(number,), ports=(number,))
        return replace(own, owner=owner, uid=number, exe_id=(1, number))

    strangers = [replace(USER, uid=1001 + number // 2) for number in range(2 * SERVERS_MAX)]
    why = Counter(followed.follow(new(1000 + n, stranger)) for n, stranger in enumerate(strangers))
    assert why[""] == SERVERS_MAX * 3 // 4 - 1
    many = [followed.follow(new(9000 + number, UNIT)) for number in range(SERVERS_MAX)]
    assert many.count("") == SERVERS_MAX // 4
    assert f"at most {SERVERS_MAX} servers" in many[-1]


def test_a_server_whose_probes_find_no_room_is_left_out_alone(
    mysqld: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tracer refuses a plan with more, and then nothing is traced."""
    path = toy_server(tmp_path / "mysqld", [MYSQL_8], flags=FULL)
    servers = [
        server(mysqld, encryption=True),
        server(path, tgids=(101,), encryption=True),
        server(mysqld, tgids=(102,), encryption=True),
        server(Path("/usr/bin/redis-server"), "redis", tgids=(103,), ports=(6379,)),
    ]
    (first, *_) = build_plan(servers[:1], KERNEL).traced
    monkeypatch.setattr("qjoule.servers.plan.PROBES_MAX", len(first.probes))
    plan = build_plan(servers, KERNEL)
    assert [planned.server.tgids for planned in plan.traced] == [(100,), (102,), (103,)]
    assert [planned.server.id for planned in plan.servers] == [1, 0, 2, 3]
    assert "probes at a time" in plan.servers[1].choice.why


def test_an_executable_without_a_handle_gets_no_probe(mysqld: Path) -> None:
    """Anybody can run one from memory; the tracer refuses such probes, and then traces nothing."""
    own = server(mysqld, encryption=True)
    in_memory = Examined("mysql", resolution=own.resolution, handle=0)
    without = replace(own, resolution=with_handles(in_memory).resolution)
    (planned,) = build_plan([without], KERNEL, children=True, ids=True).servers
    assert (planned.choice.attach_mode, planned.probes) == (AttachMode.SOCKET, ())
    assert "only in memory" in planned.choice.other
    assert with_handles(replace(in_memory, handle=HANDLE)).resolution == own.resolution


def test_a_strangers_pool_does_not_make_anothers_probes_dearer(mysqld: Path) -> None:
    own = replace(server(mysqld, encryption=True), owner=UNIT)
    alone = build_plan([own], KERNEL)
    theirs = replace(server(mysqld, tgids=(200,), ports=(3307,), pool=True), owner=USER)
    plan = build_plan([own, theirs], KERNEL)
    assert plan.arguments() == alone.arguments()
    assert "needs other probes, without a thread pool" in plan.servers[1].choice.why


@pytest.mark.parametrize(
    ("ports", "sockets", "all_seen"),
    [
        ((3306,), (), True),
        ((3306, 4444), (), False),
        ((3306,), ("/run/mysqld/mysqld.sock", "/run/mysqld/mysqlx.sock"), False),
    ],
)
def test_the_x_protocol_is_not_seen_on_the_socket_attach_mode(
    ports: tuple[int, ...], sockets: tuple[str, ...], all_seen: bool
) -> None:
    mysql = server(ports=ports, sockets=sockets)
    assert choose_attach_mode(mysql, KERNEL, "").attach_mode is (
        AttachMode.SOCKET if all_seen else AttachMode.SYMBOL
    )
    forced = choose_attach_mode(mysql, KERNEL, "", AttachMode.SOCKET)
    assert forced.exact is all_seen
    assert ("sessions of the X Protocol" in forced.why) is not all_seen


@pytest.mark.parametrize(
    ("encryption", "pool", "attach_mode", "why"),
    [
        (False, False, AttachMode.SOCKET, "those of one read are one request"),
        (
            None,
            False,
            AttachMode.SOCKET,
            "with TLS (ssl-cert: /etc/my.cnf) would be counted as loss",
        ),
        (None, None, AttachMode.SOCKET, "or that io-threads read (thread-handling) would be"),
        (None, True, AttachMode.STATISTICAL, "those with TLS would be counted as loss, not seen"),
    ],
)
def test_redis_is_exact_only_if_nothing_hides_its_requests(
    encryption: bool | None, pool: bool | None, attach_mode: AttachMode, why: str
) -> None:
    choice = choose_attach_mode(
        server(flavour="redis", encryption=encryption, pool=pool), KERNEL, "Redis has none"
    )
    assert choice.attach_mode is attach_mode
    assert choice.exact is (
        attach_mode is AttachMode.SOCKET and (encryption, pool) == (False, False)
    )
    assert why in choice.why


def test_an_early_kernel_cannot_follow_mongodbs_messages() -> None:
    mongod = server(flavour="mongodb")
    assert choose_attach_mode(mongod, OLD_KERNEL, "").attach_mode is AttachMode.SYMBOL
    choice = choose_attach_mode(mongod, replace(OLD_KERNEL, early=True), "")
    assert choice.attach_mode is AttachMode.NONE
    assert "bpf_loop() (5.17)" in choice.why


def test_the_kernels_types_tell_its_tracepoints_apart(tmp_path: Path) -> None:
    btf = tmp_path / "sys/kernel/btf/vmlinux"
    btf.parent.mkdir(parents=True)
    both = b"\x9f\xeb\0btf_trace_sock_recv_length\0btf_trace_sock_send_length\0"
    assert read_kernel_facts(tmp_path) == KernelFacts(False, False, False, early=True)
    btf.write_bytes(both)
    assert read_kernel_facts(tmp_path) == KernelFacts(True, True, False, early=True)
    helpers = b"BPF_FUNC_loop\0BPF_FUNC_dynptr_data\0"
    btf.write_bytes(both.replace(b"send_length", b"send_lengthy") + helpers)
    assert read_kernel_facts(tmp_path) == KernelFacts(True, False, False, early=False)


# ---- the probes ----------------------------------------------------------------------------------


def test_children_are_probed_only_if_asked_for(tmp_path: Path, mysqld: Path) -> None:
    begin, text = CHILDREN[Role.CHILD_BEGIN], CHILDREN[Role.CHILD_TEXT]
    path = toy_server(tmp_path / "mysqld", [MYSQL_8, begin, text], flags=("-O0",))
    assert probes_of(build_plan([server(path)], KERNEL).arguments()) == []
    assert probes_of(build_plan([server(path)], KERNEL, children=True).arguments()) == [
        f"--probe 1:mysql-child-begin:{site_of(path, begin)}",
        f"--probe 1:mysql-child-text:{site_of(path, text)}",
        f"--probe 1:mysql-child-end:{site_of(path, begin)}",
    ]
    without = build_plan([server(mysqld)], KERNEL, children=True)
    assert "statements of procedures are not told apart" in without.traced[0].notes[-1]
    assert any("--children" in reason for reason in left_out(without, children=True))


def _notes_on_names(planned: PlannedServer) -> tuple[str, ...]:
    return tuple(note for note in planned.notes if "of its sessions are not known" in note)


@pytest.mark.parametrize(("log", "change"), [*zip(LOGS, DATABASES, strict=True)])
def test_names_are_probed_where_queries_are(
    log: tuple[str, Role], change: str, tmp_path: Path
) -> None:
    functions = [MYSQL_8, CLIENTS[1], log[0], change]
    path = toy_server(tmp_path / "mysqld", functions, flags=("-O0",))
    assert build_plan([server(path)], KERNEL).servers[0].probes == ()
    plan = build_plan([server(path, encryption=True)], KERNEL)
    assert _notes_on_names(plan.servers[0]) == ()
    assert list(pairs(plan.arguments()))[2:] == [
        f"--probe 1:mysql-begin-thd-first:{site_of(path, MYSQL_8)}",
        f"--probe 1:mysql-client:{site_of(path, CLIENTS[1])}",
        f"--probe 1:{log[1]}:{site_of(path, log[0])}",
        f"--probe 1:mysql-database:{site_of(path, change)}",
        f"--probe 1:mysql-database-end:{site_of(path, change)}",
        "--fact 1:next-read:0x1",
    ]


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("pool", [True, False])
def test_reads_of_sockets_replace_the_probe_on_the_end(
    reads: bool, pool: bool, tmp_path: Path
) -> None:
    """Not if a thread pool reads on another thread, or the kernel does not show reads."""
    functions = [MYSQL_8, CLIENTS[1], LOGS[0][0], DATABASES[0]]
    path = toy_server(tmp_path / "mysqld", functions, flags=("-O0",))
    mysql = server(path, encryption=True, pool=pool)
    (planned,) = build_plan([mysql], replace(KERNEL, reads=reads)).servers
    replaced = reads and not pool
    assert planned.next_read is replaced
    assert (Role.END in {probe.role for probe in planned.probes}) is not replaced
    (begin, *_) = [probe.site.cost for probe in planned.probes if probe.symbol.name == MYSQL_8]
    assert planned.boundary_cost_ns == (begin.entry_ns if replaced else begin.both_ns)


@pytest.mark.parametrize("version", ["", "19.0"])
def test_postgres_of_an_unknown_version_has_no_symbol_attach_mode(
    postgres: Path, version: str
) -> None:
    unknown = server(postgres, "postgres", version=version, encryption=True)
    (planned,) = build_plan([unknown], KERNEL).servers
    assert (planned.choice.attach_mode, planned.choice.exact) == (AttachMode.SOCKET, False)
    with pytest.raises(QjouleError, match="backend states"):
        build_plan([unknown], KERNEL, AttachMode.SYMBOL)


# ---- several servers -----------------------------------------------------------------------------


def test_pids_choose_servers(mysqld: Path, postgres: Path) -> None:
    servers = [server(mysqld, tgids=(200,)), server(postgres, "postgres", tgids=())]
    plan = build_plan(servers, KERNEL, pids=[200])
    assert [(planned.server.tgids, planned.server.id) for planned in plan.servers] == [((200,), 1)]
    assert len(build_plan(servers, KERNEL, pids=[]).traced) == 2
    with pytest.raises(QjouleError, match="process 4711 is no database server"):
        build_plan(servers, KERNEL, pids=[200, 4711])
