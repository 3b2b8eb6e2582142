# SPDX-License-Identifier: Apache-2.0
"""Token files and scopes, lines of the audit, and what [remote] needs."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from qjoule.agent.config import load
from qjoule.errors import UsageError
from qjoule.remote.access import Refused, holder_of, new_token, read_tokens
from qjoule.remote.audit import BURST_S, MAX_BYTES, Audit

NOW = datetime(2026, 11, 23, 23, 30, tzinfo=UTC)
HASH = "0" * 64


def test_a_token_is_valid_until_its_last_day_ends() -> None:
    token, line = new_token("anna", "view,texts", date(2026, 11, 23))
    assert token not in line
    holders = read_tokens("f", f"# tokens\n\n{line}\n")
    found = holder_of(f"Bearer {token}", holders, NOW)
    assert (found.name, found.scopes) == ("anna", frozenset({"view", "texts"}))
    with pytest.raises(Refused) as refused:
        holder_of(f"bearer {token}", holders, datetime(2026, 11, 24, 0, 1, tzinfo=UTC))
    assert (refused.value.why, refused.value.name) == ("token expired", "anna")


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("", "no token"),
        ("Basic abc", "no token"),
        ("Bearer", "wrong token"),
        ("Bearer x", "wrong token"),
        (f"Bearer {HASH}", "wrong token"),
        ("Bearer \xff\udc80", "wrong token"),
    ],
)
def test_what_is_no_token_is_refused(header: str, why: str) -> None:
    _, line = new_token("anna", "view", None)
    with pytest.raises(Refused) as refused:
        holder_of(header, read_tokens("f", line), NOW)
    assert (refused.value.why, refused.value.name) == (why, "")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "must have 1 to"),
        ("a - b", "line 1: must be: name expiry hash scopes"),
        (f"a/b - {HASH} view", "line 1: a name has"),
        (f"a - {HASH[1:]} view", "line 1: the hash must be"),
        (f"a - {HASH.replace('0', 'A')} view", "line 1: the hash must be"),
        (f"\na soon {HASH} view", "line 2: the expiry must be"),
        (f"a - {HASH} view,all", "line 1: scopes are"),
        (f"a - {HASH} view\na - {HASH} view", "two tokens have the same name"),
        ("\n".join(f"a{n} - {HASH} view" for n in range(1001)), "must have 1 to 1000"),
    ],
)
def test_a_wrong_token_file_is_refused(content: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_tokens("f", content)


def test_audit_lines_are_bounded_and_safe() -> None:
    reading, writing = os.pipe()
    audit = Audit(writing)
    for _ in range(50):
        audit.write("refused", path="\x1b[2J\n" + "x" * 10_000)
    os.close(writing)
    with os.fdopen(reading) as file:
        lines = file.read().splitlines()
    assert BURST_S <= len(lines) <= BURST_S + 2
    assert all(len(line) < MAX_BYTES and "\x1b" not in line for line in lines)
    assert all(json.loads(line)["audit"] == "refused" for line in lines)


def test_an_audit_that_nobody_reads_does_not_wait() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * MAX_BYTES)
    except BlockingIOError:
        os.set_blocking(writing, True)
    audit = Audit(writing)
    audit.write("refused", why="x")
    assert audit._omitted == 1
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listen = 'all'", "remote.listen must be ADDRESS:PORT"),
        ("listen = '0.0.0.0:9780'", "beyond loopback needs remote.tls_certificate"),
        ("listen = '[::]:9780'\ntoken_file = '/t'", "beyond loopback needs"),
        ("listen = '127.0.0.1:9780'", "needs remote.token_file or remote.client_ca"),
        ("listen = '127.0.0.1:9780'\nclient_ca = '/c'", "client_ca needs remote.tls_cert"),
        ("tls_key = '/k'", "go together"),
        ("token_file = 'tokens'", "remote.token_file must be an absolute path"),
        ("connections = 1", "remote.connections must be from 2 to 256"),
    ],
)
def test_an_unsafe_configuration_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(f"[remote]\n{text}\n")
    with pytest.raises(UsageError, match=words):
        load(path)
