# SPDX-License-Identifier: Apache-2.0
"""Command lines and environments: a process may claim any content of any length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qjoule.servers.candidate import COMMAND_LINE_BYTES_MAX, Candidate, cpu_ticks
from qjoule.servers.cassandra.find import MAIN_CLASS
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.examined import Examined
from qjoule.servers.restart import restart_of
from qjoule.servers.voltdb.find import client_port
from servers.fake_proc import FakeProc
from servers.hostile import examine_alone, facts_of


@pytest.mark.parametrize("file", ["cmdline", "environ"])
def test_a_gigabyte(
    file: str, fake: FakeProc, toys: dict[str, Path], run: Callable[..., Examined]
) -> None:
    entry = fake.add(100, str(toys["mysqld"]))
    with (entry / file).open("r+b") as stream:
        stream.truncate(1 << 30)
    found = run("mysqld")
    assert found.flavour == "mysql"


def test_a_command_line_that_was_not_read_to_its_end_is_no_restarts(fake: FakeProc) -> None:
    whole = b"/bin/true\0" + b"x" * (COMMAND_LINE_BYTES_MAX - 11) + b"\0"
    fits = fake.add(100, "/bin/true", command_line=whole)
    longer = fake.add(101, "/bin/true", command_line=whole + b"y\0")
    hows = [restart_of(Candidate(DirectAccess(one), "/bin/true")).how for one in (fits, longer)]
    assert hows == ["arguments", "never"]


@pytest.mark.parametrize("word", [b"", b"-", b"\xff", b"-cp", b"@", b"--", b"port", b"-f"])
def test_a_million_words(word: bytes, fake: FakeProc, toys: dict[str, Path]) -> None:
    line = b"java\0" + (word + b"\0") * 1_000_000
    for pid, name in ((100, "mysqld"), (101, "postgres"), (102, "java"), (103, "mongod")):
        entry = fake.add(pid, str(toys[name]), command_line=line)
        found = examine_alone(DirectAccess(entry, fake.host), facts_of(toys[name], pid=pid))
        assert found.flavour is not None or name == "java"


def test_a_class_path_of_a_hundred_thousand_entries(run: Callable[..., Examined]) -> None:
    found = run("java", "-cp", ":".join(["/x"] * 60_000), MAIN_CLASS)
    assert found.flavour == "cassandra"
    assert found.facts == {"port": 0}


@pytest.mark.parametrize("url", ["http://[", "file://[::1", "//[x]y", "jar:file:/x", "x" * 5000])
def test_configurations_that_are_at_no_address(url: str, run: Callable[..., Examined]) -> None:
    found = run("java", f"-Dcassandra.config={url}", "-cp", "/x", MAIN_CLASS)
    assert found.flavour == "cassandra"
    assert found.encryption.value is None


def test_ports_that_are_none() -> None:
    for text in ("9" * 100_000, "٣٤", "-1", "", "1e3", "²"):
        assert client_port(("port", text)) == 21212


@pytest.mark.parametrize(
    "stat",
    [b"", b")", b"1 (x", b"1 (x) S", b"1 (x) " + b"9" * 100_000, b"1 (x) " + b"x " * 100_000],
)
def test_times_that_are_none(stat: bytes) -> None:
    assert cpu_ticks(stat) == 0


def test_the_times_of_a_process_whose_name_is_like_them() -> None:
    assert cpu_ticks(b"1 (a) b) 9 9) S 1 2 3 4 5 6 7 8 9 10 70 7 0 0") == 77
