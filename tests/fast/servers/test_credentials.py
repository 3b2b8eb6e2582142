# SPDX-License-Identifier: Apache-2.0
"""The file of `--credentials`, and what is done with the accounts in it."""

from __future__ import annotations

import hashlib
import socket
from contextlib import nullcontext
from pathlib import Path

import pytest

from other_user import NOBODY, SOMEBODY
from qjoule.errors import QjouleError
from qjoule.servers.cassandra.client import proven
from qjoule.servers.client import Account
from qjoule.servers.mysql.wire import TEXTS
from qjoule.session.credential_helper import CredentialHelper
from qjoule.session.credential_helper_process import said
from qjoule.session.credentials import account_for, read_credentials

SECRET = "hunter2"


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
    message = said(OSError(f"refused\n{SECRET}"), account)
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
