# SPDX-License-Identifier: Apache-2.0
"""How a mongod and a FerretDB are configured, and how they are then traced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import bson
import pytest

from fuzz.mongodb_library import op_msg, op_query
from qjoule.contract import Rung
from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import open_executable
from qjoule.servers.ferretdb.settings import NO_OWN_THREADS
from qjoule.servers.ferretdb.settings import encryption as ferretdb_encryption
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.mongodb.signatures import SIGNATURES, Role, boundary_functions
from qjoule.servers.mongodb.startup import hello
from qjoule.servers.rungs import choose_rung
from qjoule.servers.support import Settings
from qjoule.servers.types import Fact, Server
from servers.examined import candidate, settings_of
from servers.fake_proc import FakeProc
from servers.toy_elf import toy_server

TODAY = KernelFacts(reads=True, sends=True, uprobes=True)


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
        (("--sslMode=allowSSL",), (True, False, True)),
        (("-sslMode", "disabled"), (False, False, True)),
        (("--sslOnNormalPorts",), (True, False, True)),
        (("--serviceExecutor", "adaptive"), (False, True, True)),
        (("--setParameter", "initialServiceExecutorThreadingModel=borrowed"), (False, True, True)),
        (("--networkMessageCompressors", "disabled"), (False, False, False)),
        (("--port", "27017", "--dbpath", "/data"), (False, False, True)),
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
        ("net.tls.mode: requireTLS\n", (True, False, True)),
        ("net:\n  compression: {compressors: disabled}\n", (False, False, False)),
        ("sslMode = requireSSL\n# a comment\nport = 1\n", (True, False, True)),
        ("net:\n  tls:\n    __exec: /bin/say\n", (None, None, None)),
        ("net: [\n", (None, None, None)),
        ("setParameter:\n  initialServiceExecutorUseDedicatedThread: false\n", (False, True, True)),
    ],
)
def test_the_configuration_file(
    file: str, expected: tuple[bool | None, ...], tmp_path: Path
) -> None:
    found = settings_of(process(tmp_path, "--config", "/etc/mongod.conf", file=file), "mongodb")
    assert values(found) == expected


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    file = "net:\n  tls:\n    mode: requireTLS\n"
    found = settings_of(
        process(tmp_path, "-f", "mongod.conf", "--tlsMode=disabled", file=file), "mongodb"
    )
    assert found.encryption.value is False


def test_a_file_that_is_not_there_is_not_guessed_at(tmp_path: Path) -> None:
    found = settings_of(process(tmp_path, "--config=/etc/other.conf"), "mongodb")
    assert values(found) == (None, None, None)
    assert "other.conf" in found.encryption.source


def test_ferretdb_listens_for_tls(tmp_path: Path) -> None:
    assert ferretdb_encryption(process(tmp_path / "1")).value is False
    assert ferretdb_encryption(process(tmp_path / "2", "--listen-tls=:27018")).value is True
    environment = ("FERRETDB_LISTEN_TLS=:27018",)
    assert ferretdb_encryption(process(tmp_path / "3", environment=environment)).value is True


def server(flavour: str, encryption: bool | None, pool: Fact) -> Server:
    return Server(
        id=1,
        flavour=flavour,
        version="",
        exe_path=Path("/"),
        exe_name="/",
        exe_id=(1, 1),
        tgids=(100,),
        ports=(27017,),
        sockets=(),
        encryption=Fact(encryption, "tls"),
        thread_pool=pool,
    )


@pytest.mark.parametrize(
    ("encryption", "pool", "problem", "rung", "exact"),
    [
        (False, False, "", Rung.SOCKET, True),
        (True, False, "", Rung.SYMBOL, True),
        (True, False, "no handleRequest", Rung.SOCKET, False),
        (False, True, "", Rung.SYMBOL, True),
        (False, True, "no handleRequest", Rung.NONE, False),
    ],
)
def test_the_rung_of_a_mongod(
    encryption: bool, pool: bool, problem: str, rung: Rung, exact: bool
) -> None:
    choice = choose_rung(server("mongodb", encryption, Fact(pool, "")), TODAY, problem)
    assert (choice.rung, choice.exact) == (rung, exact)


def test_the_rung_of_a_ferretdb() -> None:
    ferret = server("ferretdb", False, NO_OWN_THREADS)
    choice = choose_rung(ferret, TODAY, "FerretDB has none")
    assert (choice.rung, choice.exact) == (Rung.STATISTICAL, False)
    assert choose_rung(ferret, TODAY, "", Rung.STATISTICAL) == choice
    before = KernelFacts(reads=False, sends=False, uprobes=True)
    assert choose_rung(ferret, before, "").rung is Rung.NONE
    with pytest.raises(QjouleError, match="goroutines"):
        choose_rung(ferret, TODAY, "", Rung.SYMBOL)


def test_an_early_kernel_cannot_follow_its_messages() -> None:
    before = KernelFacts(reads=False, sends=False, uprobes=True)
    mongod = server("mongodb", False, Fact(False, ""))
    assert choose_rung(mongod, before, "").rung is Rung.SYMBOL
    choice = choose_rung(mongod, replace(before, early=True), "")
    assert choice.rung is Rung.NONE
    assert "bpf_loop() (5.17)" in choice.why


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


@pytest.mark.parametrize("size", [0, 4, 5, 20, 60, 512])
def test_a_greeting_that_is_cut_says_less(size: int) -> None:
    for whole in (op_msg(HELLO), op_query("admin.$cmd", HELLO)):
        found = hello(whole[16 : 16 + size])
        assert found.application == ("till" if size == 512 else None)
        assert found.user is None


def test_a_greeting_names_its_user() -> None:
    asked = {**HELLO, "saslSupportedMechs": "shop.ann", "$db": "admin"}
    found = hello(op_msg(asked)[16:])
    assert (found.user, found.database, found.application) == ("ann", "shop", "till")
    payload = bson.Binary(b"n,,n=a=2Cnn,r=nonce")
    speculative = {"saslStart": 1, "payload": payload, "db": "shop"}
    found = hello(op_msg({**HELLO, "speculativeAuthenticate": speculative})[16:])
    assert (found.user, found.database) == ("a,nn", "shop")
