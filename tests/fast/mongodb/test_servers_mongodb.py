# SPDX-License-Identifier: Apache-2.0
"""What a mongod's and a FerretDB's configuration, functions and greetings say."""

from __future__ import annotations

from pathlib import Path

import bson
import pytest

from fuzz.mongodb_library import op_msg, op_query
from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import open_executable
from qjoule.servers.ferretdb.support import encryption as ferretdb_encryption
from qjoule.servers.mongodb.find import SIGNATURES, Role, boundary_functions
from qjoule.servers.mongodb.wire import hello
from qjoule.servers.support import Settings
from servers.fake_proc import FakeProc, candidate, settings_of
from servers.toy_elf import toy_server


def process(
    base: Path, *arguments: str, file: str | None = None, environment: tuple[str, ...] = ()
) -> Candidate:
    base.mkdir(exist_ok=True)
    fake = FakeProc(base)
    if file is not None:
        (fake.host / "etc").mkdir(parents=True, exist_ok=True)
        (fake.host / "etc" / "mongod.conf").write_text(file)
    entry = fake.add(
        100, "/bin/true", arguments=("mongod", *arguments), cwd="/etc", environment=environment
    )
    return candidate(entry)


def values(facts: Settings) -> tuple[bool | None, bool | None, bool | None]:
    return (facts.encryption.value, facts.thread_pool.value, facts.compression.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), (False, False, True)),
        (("--tlsMode", "requireTLS"), (True, False, True)),
        (("--serviceExecutor", "adaptive"), (False, True, True)),
        (("--setParameter", "initialServiceExecutorThreadingModel=borrowed"), (False, True, True)),
        (("--networkMessageCompressors", "disabled"), (False, False, False)),
    ],
)
def test_the_command_line(
    arguments: tuple[str, ...], expected: tuple[bool | None, ...], tmp_path: Path
) -> None:
    assert values(settings_of(process(tmp_path, *arguments), "mongodb")) == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("", (False, False, True)),
        ("net:\n  port: 1\n  tls:\n    mode: preferTLS\n", (True, False, True)),
        ("sslMode = requireSSL\n# a comment\nport = 1\n", (True, False, True)),
        ("net:\n  tls:\n    __exec: /bin/say\n", (None, None, None)),
        ("net: [\n", (None, None, None)),
    ],
)
def test_the_configuration_file(
    file: str, expected: tuple[bool | None, ...], tmp_path: Path
) -> None:
    found = settings_of(process(tmp_path, "--config", "/etc/mongod.conf", file=file), "mongodb")
    assert values(found) == expected


def test_ferretdb_listens_for_tls(tmp_path: Path) -> None:
    assert ferretdb_encryption(process(tmp_path / "1")).value is False
    assert ferretdb_encryption(process(tmp_path / "2", "--listen-tls=:27018")).value is True
    environment = ("FERRETDB_LISTEN_TLS=:27018",)
    assert ferretdb_encryption(process(tmp_path / "3", environment=environment)).value is True


@pytest.mark.parametrize("name", [name for _, name in SIGNATURES])
def test_the_function_is_found_by_its_whole_signature(name: str, tmp_path: Path) -> None:
    executable = open_executable(toy_server(tmp_path / "toy", [name, "_ZN5mongo4mainEv"]))
    found = boundary_functions(executable)
    assert {role: symbol.name for role, symbol in found.items()} == {
        Role.REQUEST: name,
        Role.DONE: name,
    }


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["main2"], "no handleRequest of a mongod"),
        ([SIGNATURES[0][1], SIGNATURES[1][1]], "two signatures"),
        ([SIGNATURES[0][1] + "i"], "signature that is not known"),
    ],
)
def test_no_function_is_guessed(names: list[str], why: str, tmp_path: Path) -> None:
    executable = open_executable(toy_server(tmp_path / "toy", names))
    with pytest.raises(QjouleError, match=why):
        boundary_functions(executable)


HELLO = {"hello": 1, "client": {"driver": {"name": "x"}, "application": {"name": "till"}}}


@pytest.mark.parametrize("size", [0, 60, 512])
def test_a_greeting_that_is_cut_has_no_application(size: int) -> None:
    for whole in (op_msg(HELLO), op_query("admin.$cmd", HELLO)):
        greeting = hello(whole[16 : 16 + size])
        assert greeting.application == ("till" if size == 512 else None)
        assert greeting.user is None


def test_a_greeting_names_its_user() -> None:
    asked = {**HELLO, "saslSupportedMechs": "shop.ann", "$db": "admin"}
    found = hello(op_msg(asked)[16:])
    assert (found.user, found.database, found.application) == ("ann", "shop", "till")
    payload = bson.Binary(b"n,,n=a=2Cnn,r=nonce")
    speculative = {"saslStart": 1, "payload": payload, "db": "shop"}
    found = hello(op_msg({**HELLO, "speculativeAuthenticate": speculative})[16:])
    assert (found.user, found.database) == ("a,nn", "shop")
