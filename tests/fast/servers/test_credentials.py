# SPDX-License-Identifier: Apache-2.0
"""The file of `--credentials`, and what its users may say of it."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import numpy as np
import pytest

from qjoule.contract import UNSEEN
from qjoule.errors import QjouleError
from qjoule.servers.cassandra.texts import proven
from qjoule.servers.mysql.unseen import KEY, TEXTS, key_of
from qjoule.servers.texts_by_id import Account
from qjoule.session.asker import Asker
from qjoule.session.asker_process import said
from qjoule.session.credentials import read_credentials

SECRET = "hunter2"


def _read(directory: Path, text: str) -> dict[str, Account]:
    file = directory / "accounts.toml"
    file.write_text(text)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return dict(read_credentials(descriptor))
    finally:
        os.close(descriptor)


def test_sections_are_products_and_servers(tmp_path: Path) -> None:
    text = '[cassandra]\n["mysql:3306"]\nuser = "u"\npassword = "p"\nhost = "10.0.0.7"\n'
    assert _read(tmp_path, text) == {
        "cassandra": Account(),
        "mysql:3306": Account("u", "p", "10.0.0.7"),
    }


@pytest.mark.parametrize(
    "text",
    [
        f"password = {SECRET}",
        f'password = "{SECRET}"',
        f'[mysql]\npasswort = "{SECRET}"',
        f'[mysql]\npassword = ["{SECRET}"]',
        f'[mysql]\npassword = "{SECRET}',
        f"\x00{SECRET}",
    ],
)
def test_what_has_another_form_is_refused_without_its_content(tmp_path: Path, text: str) -> None:
    with pytest.raises(QjouleError) as refused:
        _read(tmp_path, text)
    assert SECRET not in str(refused.value)


def test_a_password_is_in_no_words() -> None:
    account = Account("u", SECRET)
    assert SECRET not in repr(account)
    assert SECRET not in said(OSError(f"refused\n{SECRET}"), account)
    assert "\n" not in said(OSError("refused\nindeed"), account)


def test_answers_of_cassandra_are_proven() -> None:
    text = "SELECT a FROM b"
    assert proven(hashlib.md5(text.encode()).digest(), None, text)
    assert proven(hashlib.md5(f"shop{text}".encode()).digest(), "shop", text)
    assert not proven(hashlib.md5(text.encode()).digest(), None, "SELECT c FROM b")


def test_statements_of_mysql_are_named_by_thread_and_number() -> None:
    def unseen(statement: int) -> bytes:
        return np.array([(1, statement)], UNSEEN).tobytes()

    assert key_of(unseen(5), 4711) == KEY.pack(4711, 5)
    assert key_of(unseen((1 << 64) - 1), 4711) is None, "the unnamed statement"
    assert key_of(b"", 4711) is None


def test_an_asker_that_has_ended_is_told() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asker = Asker(ours, 0, {1: TEXTS}, {})
    asker.ask(1, 7, b"key")
    assert asker.take() == []
    assert asker.refused == {}
    theirs.recv(100)
    theirs.close()
    asker.ask(1, 8, b"key")
    assert asker.take() == []
    assert "has ended" in asker.refused[1]
    ours.close()
