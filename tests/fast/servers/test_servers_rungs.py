# SPDX-License-Identifier: Apache-2.0
"""Every choice of a rung, and the line that explains it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.contract import Rung
from qjoule.errors import QjouleError
from qjoule.machine.kernel_facts import read_kernel_facts
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.rungs import choose_rung
from qjoule.servers.types import Fact, Server

NEW = KernelFacts(reads=True, sends=True, uprobes=True)
OLD = KernelFacts(reads=False, sends=False, uprobes=True)
NO_SENDS, NO_UPROBES = replace(NEW, sends=False), replace(NEW, uprobes=False)


def server(encryption: bool | None = False, pool: bool | None = False) -> Server:
    path = Path("/usr/sbin/mariadbd")
    return Server(
        id=1,
        flavour="mariadb",
        version="10.11.19",
        exe_path=path,
        exe_name=str(path),
        exe_id=(1, 1),
        tgids=(100,),
        ports=(3306,),
        sockets=(),
        encryption=Fact(encryption, "ssl-cert: /etc/my.cnf"),
        thread_pool=Fact(pool, "thread-handling"),
    )


STRIPPED = "no dispatch_command in .dynsym"


@pytest.mark.parametrize(
    ("kernel", "encryption", "pool", "symbols", "rung", "exact", "why"),
    [
        (NEW, False, False, "", Rung.SOCKET, True, "one thread per connection, plain text"),
        (NEW, False, False, STRIPPED, Rung.SOCKET, True, "one thread per connection"),
        (NEW, True, False, "", Rung.SYMBOL, True, "may be encrypted"),
        (NEW, None, False, "", Rung.SYMBOL, True, "encryption cannot be ruled out"),
        (NEW, False, True, "", Rung.SYMBOL, True, "a thread pool moves"),
        (NEW, False, None, "", Rung.SYMBOL, True, "a thread pool cannot be ruled out"),
        (OLD, False, False, "", Rung.SYMBOL, True, "kernel lacks"),
        (NEW, True, False, STRIPPED, Rung.SOCKET, False, "counted, not seen"),
        (NEW, True, True, STRIPPED, Rung.NONE, False, STRIPPED),
        (NEW, False, None, STRIPPED, Rung.NONE, False, STRIPPED),
        (OLD, False, False, STRIPPED, Rung.NONE, False, "kernel lacks"),
        (NO_UPROBES, False, False, "", Rung.SOCKET, True, "plain text"),
        (NO_UPROBES, False, True, "", Rung.NONE, False, "no uprobes"),
    ],
)
def test_the_cheapest_exact_rung(
    *,
    kernel: KernelFacts,
    encryption: bool | None,
    pool: bool | None,
    symbols: str,
    rung: Rung,
    exact: bool,
    why: str,
) -> None:
    choice = choose_rung(server(encryption, pool), kernel, symbols)
    assert (choice.rung, choice.exact) == (rung, exact)
    assert why in choice.why
    assert "\n" not in choice.why + choice.other


@pytest.mark.parametrize(
    ("kernel", "encryption", "pool", "other"),
    [
        (NEW, False, False, "symbol: possible, dearer"),
        (NEW, True, False, "socket: would need encryption turned off"),
        (NEW, False, True, "socket: would need one thread per connection"),
        (
            OLD,
            True,
            True,
            "socket: would need Linux 6.3 and one thread per connection and encryption",
        ),
    ],
)
def test_what_the_other_rung_would_need(
    kernel: KernelFacts, encryption: bool, pool: bool, other: str
) -> None:
    assert other in choose_rung(server(encryption, pool), kernel, "").other


def test_a_wanted_rung_is_taken_or_refused() -> None:
    assert choose_rung(server(), NEW, "", Rung.SYMBOL).rung is Rung.SYMBOL
    forced = choose_rung(server(encryption=True), NEW, "", Rung.SOCKET)
    assert (forced.rung, forced.exact) == (Rung.SOCKET, False)
    with pytest.raises(QjouleError, match=STRIPPED):
        choose_rung(server(), NEW, STRIPPED, Rung.SYMBOL)
    with pytest.raises(QjouleError, match="kernel lacks"):
        choose_rung(server(), OLD, "", Rung.SOCKET)
    with pytest.raises(QjouleError, match="thread pool"):
        choose_rung(server(pool=True), NEW, "", Rung.SOCKET)
    with pytest.raises(QjouleError, match="cannot use the tag rung"):
        choose_rung(server(), NEW, "", Rung.TAG)


def test_a_wanted_rung_does_not_fail_for_what_is_only_installed() -> None:
    installed = replace(server(pool=None), tgids=())
    choice = choose_rung(installed, NEW, "", Rung.SOCKET)
    assert (choice.rung, choice.exact) == (Rung.NONE, False)
    assert "thread pool" in choice.why


def test_another_server_of_the_same_file_decides() -> None:
    choice = choose_rung(server(), NEW, "", shared_executable="mariadb:3307 runs it too")
    assert (choice.rung, choice.why) == (Rung.SYMBOL, "mariadb:3307 runs it too")
    assert choice.other == "socket: possible if that other server is left out, with --pid"


def test_kernel_facts_tell_the_tracepoints_apart(tmp_path: Path) -> None:
    btf = tmp_path / "sys/kernel/btf/vmlinux"
    btf.parent.mkdir(parents=True)
    both = b"\x9f\xeb\0btf_trace_sock_recv_length\0btf_trace_sock_send_length\0"
    assert read_kernel_facts(tmp_path) == KernelFacts(False, False, False, early=True)
    btf.write_bytes(both)
    assert read_kernel_facts(tmp_path) == KernelFacts(True, True, False, early=True)
    helpers = b"BPF_FUNC_loop\0BPF_FUNC_dynptr_data\0"
    btf.write_bytes(both.replace(b"send_length", b"send_lengthy") + helpers)
    assert read_kernel_facts(tmp_path) == KernelFacts(True, False, False, early=False)


def test_only_who_is_traced_by_its_sends_needs_their_tracepoint() -> None:
    assert choose_rung(server(), NO_SENDS, "").rung is Rung.SOCKET
    assert choose_rung(redis(), NO_SENDS, "").why.endswith("sock_send_length (6.3)")


def mysql(*ports: int, sockets: tuple[str, ...] = ()) -> Server:
    return replace(server(), flavour="mysql", ports=ports, sockets=sockets)


@pytest.mark.parametrize(
    "one",
    [
        mysql(3306, 33060),
        mysql(3306, 4444),
        mysql(3306, sockets=("/run/mysqld/mysqld.sock", "/run/mysqld/mysqlx.sock")),
    ],
)
def test_the_x_protocol_is_not_claimed_exact_on_the_socket_rung(one: Server) -> None:
    assert choose_rung(one, NEW, "").rung is Rung.SYMBOL
    for choice in (choose_rung(one, NEW, STRIPPED), choose_rung(one, NEW, "", Rung.SOCKET)):
        assert (choice.rung, choice.exact) == (Rung.SOCKET, False)
        assert "sessions of the X Protocol" in choice.why
        assert choice.unseen in choice.why
    assert choose_rung(one, NEW, "", Rung.SYMBOL).exact


def test_ports_of_the_classic_protocol_stay_exact() -> None:
    for one in (mysql(3306), mysql(3306, 33062), replace(mysql(3306, 33060), flavour="mariadb")):
        choice = choose_rung(one, NEW, "")
        assert (choice.rung, choice.exact, choice.unseen) == (Rung.SOCKET, True, "")


def redis(encryption: bool | None = False, pool: bool | None = False) -> Server:
    return replace(server(encryption, pool), flavour="redis", ports=(6379,))


@pytest.mark.parametrize(
    ("kernel", "encryption", "pool", "rung", "why"),
    [
        (NEW, False, False, Rung.SOCKET, "those of one read are one request"),
        (NO_UPROBES, False, False, Rung.SOCKET, "those of one read are one request"),
        (
            NEW,
            None,
            False,
            Rung.SOCKET,
            "with TLS (ssl-cert: /etc/my.cnf) would be counted as loss",
        ),
        (NEW, False, None, Rung.SOCKET, "that io-threads read (thread-handling) would be counted"),
        (NEW, None, None, Rung.SOCKET, "or that io-threads read (thread-handling) would be"),
        (NEW, False, True, Rung.STATISTICAL, "timed; thread-handling, so none owns CPU time"),
        (NEW, None, True, Rung.STATISTICAL, "those with TLS would be counted as loss, not seen"),
        (OLD, False, True, Rung.NONE, "kernel lacks"),
        (OLD, False, False, Rung.NONE, "kernel lacks"),
        (NO_SENDS, False, False, Rung.NONE, "kernel lacks"),
    ],
)
def test_redis_is_seen_on_its_sockets_or_not_at_all(
    kernel: KernelFacts, encryption: bool | None, pool: bool | None, rung: Rung, why: str
) -> None:
    choice = choose_rung(redis(encryption, pool), kernel, "Redis has none")
    assert choice.rung is rung
    assert choice.exact is (rung is Rung.SOCKET and (encryption, pool) == (False, False))
    assert why in choice.why


def test_redis_has_only_the_rung_that_its_threads_allow() -> None:
    assert choose_rung(redis(), NEW, "", Rung.SOCKET).rung is Rung.SOCKET
    with pytest.raises(QjouleError, match="cannot use the symbol rung: Redis has none"):
        choose_rung(redis(), NEW, "", Rung.SYMBOL)
    with pytest.raises(QjouleError, match="cannot use the statistical rung"):
        choose_rung(redis(), NEW, "", Rung.STATISTICAL)
    reading = redis(pool=True)
    assert choose_rung(reading, NEW, "", Rung.STATISTICAL).rung is Rung.STATISTICAL
    with pytest.raises(QjouleError, match="cannot use the socket rung: thread-handling"):
        choose_rung(reading, NEW, "", Rung.SOCKET)
