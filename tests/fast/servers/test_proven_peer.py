# SPDX-License-Identifier: Apache-2.0
"""To whom the credential helper connects, and how much of a password a server can get out of it.
Also: the file of `--credentials`.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import threading
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from other_user import NOBODY, SOMEBODY, other_user
from qjoule.errors import QjouleError
from qjoule.servers.cassandra.client import proven
from qjoule.servers.client import Account
from qjoule.servers.mysql.client import log_in
from qjoule.servers.mysql.wire import TEXTS
from qjoule.session import credentials
from qjoule.session.credential_helper import CredentialHelper
from qjoule.session.credential_helper_process import without_password
from qjoule.session.credentials import Peers, TracedProcess, account_for, read_credentials

SECRET = "hunter2"


def accept(listening: socket.socket) -> socket.socket:
    """Serves connections on a thread."""

    clients = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                clients.append(listening.accept()[0])

    threading.Thread(target=serve, daemon=True).start()
    return listening


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Peers:
    """The guard ends with the test."""
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, getattr(socket.socket, name))
    monkeypatch.setattr(credentials, "ANSWER_S", 0.3)
    guarded = Peers()
    guarded.guard()
    return guarded


def traced(listening: socket.socket) -> TracedProcess:
    inodes = frozenset({os.fstat(listening.fileno()).st_ino})
    return TracedProcess(os.getpid(), os.geteuid(), inodes)


@pytest.mark.parametrize("where", ["127.0.0.1", "::1"])
def test_only_the_traced_process_s_address_is_connected_to(peers: Peers, where: str) -> None:
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    with (
        accept(socket.create_server((where, 0), family=family)) as listening,
        socket.create_server((where, 0), family=family) as other,
    ):
        at, elsewhere = listening.getsockname()[:2], other.getsockname()[:2]
        assert peers.add(at[0], at[1], traced(listening)).address == where
        for _ in range(2):  # drivers connect again
            socket.create_connection(at).close()
        with pytest.raises(QjouleError, match="is not a server that may be asked"):
            socket.create_connection(elsewhere)
        with pytest.raises(QjouleError, match="not proven in this way"), socket.socket() as late:
            late.connect_ex(at)
        with pytest.raises(QjouleError, match="no socket of the traced process"):
            peers.add(where, elsewhere[1], traced(listening))
        peers.add(where, elsewhere[1], traced(other))
        with pytest.raises(QjouleError, match="does not accept"):
            socket.create_connection(elsewhere)


@pytest.mark.root
@pytest.mark.parametrize(
    ("takes", "why"),
    [
        ("the port", "another socket than when tracing began"),
        ("its socket", f"user {NOBODY} accepted the connection, not the server's user 0"),
    ],
)
def test_another_user_s_process_takes_it(peers: Peers, takes: str, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        at = listening.getsockname()
        peer = peers.add(at[0], at[1], traced(listening))
        if takes == "the port":
            listening.close()

        def take() -> tuple[None, object]:
            return None, accept(socket.create_server(at) if takes == "the port" else listening)

        with other_user(NOBODY, take):
            with pytest.raises(QjouleError, match=why):
                socket.create_connection(at)
            assert why in peer.refused


def packet(number: int, content: bytes) -> bytes:
    return struct.pack("<I", len(content))[:3] + bytes([number]) + content


def greeting(plugin: bytes) -> bytes:
    """The greeting of a server without TLS: HandshakeV10 of the MySQL protocol, with a salt of 20
    bytes."""
    flags = 0x0008_8200  # PLUGIN_AUTH, SECURE_CONNECTION, PROTOCOL_41
    head = b"\x0a8.4.0\0" + bytes(4) + b"s" * 8 + b"\0" + struct.pack("<H", flags & 0xFFFF)
    more = b"\x2d" + bytes(2) + struct.pack("<H", flags >> 16) + b"\x15" + bytes(10)
    return packet(0, head + more + b"s" * 12 + b"\0" + plugin + b"\0")


@pytest.mark.parametrize(
    ("plugin", "answer"),
    [
        *(
            (b"mysql_native_password", b"\xfe" + name + b"\0" + b"s" * 20)
            for name in (b"mysql_clear_password", b"mysql_old_password", b"sha256_password")
        ),
        (b"mysql_native_password", b"\xfedialog\0\4Password: "),
        (b"caching_sha2_password", b"\1\4"),  # not cached: the whole password is wanted
        (b"sha256_password", b"\1-----BEGIN PUBLIC KEY-----"),
    ],
)
def test_a_mysql_that_wants_the_password_itself_does_not_get_it(
    plugin: bytes, answer: bytes
) -> None:
    heard: list[bytes] = []

    def serve() -> None:
        with listening.accept()[0] as client:
            client.sendall(greeting(plugin))
            heard.append(client.recv(4096))
            client.sendall(packet(2, answer))
            heard.append(client.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve)
        server.start()
        with pytest.raises(QjouleError, match="wants the password itself"):
            log_in(Account("u", SECRET), listening.getsockname()[1])
        server.join()
    login, after = heard
    assert SECRET.encode() not in login
    assert after == b""


# ---- the file of `--credentials`, and what is done with the accounts in it -----------------------


def accounts_in(text: str, directory: Path) -> dict[str, Account]:
    file = directory / "accounts.toml"
    file.write_text(text)
    with file.open() as opened:
        return dict(read_credentials(opened.fileno()))


def test_sections_are_products_and_servers(tmp_path: Path) -> None:
    text = '[cassandra]\n["mysql:3306"]\nuser = "u"\npassword = "p"\nhost = "10.0.0.7"\n'
    text += '[redis]\nusers = ["nobody", "54003"]\n'
    assert accounts_in(text, tmp_path) == {
        "cassandra": Account(),
        "mysql:3306": Account("u", "p", "10.0.0.7"),
        "redis": Account(users=("nobody", "54003")),
    }


@pytest.mark.parametrize(
    ("label", "flavour", "uid", "why"),
    [
        *(("redis:6379", "redis", uid, "") for uid in (0, NOBODY, SOMEBODY)),
        ("redis:6379", "redis", 54004, r"\[redis\] is not for servers of 54004"),
        ("mysql:3306", "mysql", SOMEBODY, ""),
        ("mysql:3307", "mysql", 0, r"no \[mysql\]"),
        ("mysql:3308", "mysql", NOBODY, r"\[mysql:3308\] is not for servers of nobody"),
    ],
)
def test_a_product_s_section_is_for_servers_of_root_and_of_listed_users(
    label: str, flavour: str, uid: int, why: str
) -> None:
    accounts = {
        "redis": Account(users=("nobody", "54003")),
        "mysql:3306": Account(),
        "mysql:3308": Account(users=("mysql",)),
    }
    with pytest.raises(QjouleError, match=why) if why else nullcontext():
        account_for(accounts, label, flavour, uid)


@pytest.mark.parametrize(
    "text",
    [
        f'password = "{SECRET}"',
        f'[mysql]\npasswort = "{SECRET}"',
        f'[mysql]\npassword = "{SECRET}',
        f'[mysql]\nusers = "{SECRET}"',
        f"\x00{SECRET}",
    ],
)
def test_a_damaged_file_is_refused_without_its_content(tmp_path: Path, text: str) -> None:
    with pytest.raises(QjouleError) as refused:
        accounts_in(text, tmp_path)
    assert SECRET not in str(refused.value)


def test_no_message_shows_a_password() -> None:
    account = Account("u", SECRET)
    assert SECRET not in repr(account)
    message = without_password(OSError(f"refused\n{SECRET}"), account)
    assert SECRET not in message
    assert "\n" not in message


def test_a_text_from_cassandra_must_have_the_hash_that_names_it() -> None:
    text = "SELECT a FROM b"
    for keyspace in (None, "shop"):
        assert proven(hashlib.md5(f"{keyspace or ''}{text}".encode()).digest(), keyspace, text)
    assert not proven(hashlib.md5(text.encode()).digest(), None, "SELECT c FROM b")


def test_an_asker_that_has_ended_is_reported() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        helper = CredentialHelper(ours, 0, {1: TEXTS}, {})
        helper.ask(1, 7, b"key")
        assert helper.take() == []
        assert helper.refused == {}
        theirs.recv(100)
        theirs.close()
        helper.ask(1, 8, b"key")
        assert helper.take() == []
        assert "has ended" in helper.refused[1]
