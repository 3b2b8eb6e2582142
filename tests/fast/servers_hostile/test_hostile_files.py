# SPDX-License-Identifier: Apache-2.0
"""Command lines, configuration files and tables of /proc that are made to exhaust their reader.
Also: files and tables that were damaged at random.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.servers.access import Mapping, Unreadable, mapped_files
from qjoule.servers.candidate import COMMAND_LINE_BYTES_MAX, Candidate
from qjoule.servers.cassandra.find import MAIN_CLASS
from qjoule.servers.config_files import TEXT_MAX, read_settings
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.examine import examine, restart_of
from qjoule.servers.postgres.support import encryption as postgres_encryption
from qjoule.servers.processes import socket_ports, unix_listeners
from qjoule.servers.types import Examined, Fact
from servers.fake_proc import FakeProc, settings_of
from servers.hostile import examine_alone, facts_of
from servers.toy_elf import pack_symbols

Write = Callable[[str, bytes], None]

# ---- command lines -------------------------------------------------------------------------------


def test_a_command_line_that_was_cut_has_no_hash(fake: FakeProc) -> None:
    command_line = b"/bin/true\0" + b"x" * (COMMAND_LINE_BYTES_MAX - 11)
    complete = fake.add(100, "/bin/true", command_line=command_line + b"\0")
    cut = fake.add(101, "/bin/true", command_line=command_line + b"x\0y\0")
    candidates = [Candidate(DirectAccess(entry), "/bin/true") for entry in (complete, cut)]
    assert [restart_of(candidate).how for candidate in candidates] == ["arguments", "never"]


@pytest.mark.parametrize("word", [b"", b"-cp", b"--"])
def test_a_million_words_are_examined_in_bounds(
    word: bytes, fake: FakeProc, toys: dict[str, Path]
) -> None:
    line = b"java\0" + (word + b"\0") * 1_000_000
    for pid, name in ((100, "mysqld"), (101, "postgres"), (102, "java"), (103, "mongod")):
        entry = fake.add(pid, str(toys[name]), command_line=line)
        result = examine_alone(DirectAccess(entry, fake.host), facts_of(toys[name], pid=pid))
        assert result.flavour is not None or name == "java"


# ---- option files --------------------------------------------------------------------------------


def of_mysql(candidate: Candidate) -> Fact:
    return settings_of(candidate, "mariadb", "10.11.19").encryption


def assert_unknown(fact: Fact, message: str) -> None:
    assert fact.value is None
    assert message in fact.source
    assert "\n" not in fact.source
    assert len(fact.source) < 1000


def test_files_that_include_each_other_are_bounded(
    process: Callable[..., Candidate], write: Write
) -> None:
    """Ten levels of ten files are ten thousand million reads."""
    for level in range(12):
        write(f"/data/{level}.conf", f"include '{level + 1}.conf'\n".encode() * 10)
        write(f"/etc/{level}.cnf", f"!include /etc/{level + 1}.cnf\n".encode() * 10)
    write("/data/postgresql.conf", b"include '0.conf'\n")
    write("/etc/my.cnf", b"!include /etc/0.cnf\n")
    candidate = process()
    assert_unknown(of_mysql(candidate), "too many option files")
    assert_unknown(postgres_encryption(candidate), "too many configuration files")


@pytest.mark.parametrize(
    ("files", "content", "message"),
    [(1000, b"!includedir /etc/d\n", "too many option files"), (100, b"\n" * 900_000, "too large")],
)
def test_a_directory_of_option_files_is_bounded(
    files: int, content: bytes, message: str, process: Callable[..., Candidate], write: Write
) -> None:
    for number in range(files):
        write(f"/etc/d/{number:04}.cnf", content)
    write("/etc/my.cnf", b"!includedir /etc/d\n")
    assert_unknown(of_mysql(process()), message)


@pytest.mark.parametrize("filler", [b"x", b"'", b'"', b"\t\0", b"a = 'b"])
def test_the_length_of_a_line_is_bounded(
    filler: bytes, run: Callable[..., Examined], write: Write
) -> None:
    """A backtracking regular expression took a second for each line of the greatest length."""
    endless = filler * (900_000 // len(filler))
    write("/etc/my.cnf", b"[mysqld]\nssl=" + endless)
    write("/data/postgresql.conf", b"ssl = " + endless)
    assert_unknown(run("mysqld").thread_pool, "characters")
    assert_unknown(run("postgres", pid=200).encryption, "characters")
    longest = (b"ssl" + filler * 4000)[:4090] + b"\n"
    write("/etc/my.cnf", b"[mysqld]\n" + longest * 250)
    write("/data/postgresql.conf", longest * 250)
    for name, pid in (("mysqld", 100), ("postgres", 200)):
        assert run(name, pid=pid).flavour is not None


def test_no_message_shows_a_files_content(process: Callable[..., Candidate], write: Write) -> None:
    """A server's user may name any file as its configuration, and can read qjoule's messages."""
    secret = "root:$6$secretsecret:19000:0:99999:7:::"
    write("/etc/my.cnf", f"[mysqld]\n!include {secret}\nssl-cert={secret}\n".encode())
    candidate = process(f"--defaults-file={secret}")
    assert "secret" not in of_mysql(candidate).source
    for text in (f"ssl = '{secret}'\n", f"include '{secret}\x1b'\n" * 300):
        write("/data/postgresql.conf", text.encode())
        assert "secret" not in postgres_encryption(candidate).source


# ---- YAML ----------------------------------------------------------------------------------------


def _levels(first: str, entry: str) -> str:
    """Thirty levels, each of which names the one below ten times."""
    lines = [first]
    for level in range(1, 30):
        below = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(entry.format(level=level, below=below))
    return "\n".join(lines) + "\n"


BOMBS = {
    "aliases of aliases": _levels("a0: &a0 [x, x, x, x, x, x]", "a{level}: &a{level} [{below}]"),
    "merged mappings": _levels("a0: &a0 {x: 1}", "a{level}: &a{level} {{<<: [{below}], y: 1}}"),
    "an alias within what it names": "a: &a [*a]\n",
    "an alias of nothing": "a: *secretword\n",
    "nested lists": "a: " + "[" * 5000 + "]" * 5000,
    "many events": "a: [" + "x," * 100_000 + "]",
    "a long file": "# " + "x" * TEXT_MAX,
    "several documents": "a: 1\n---\nb: 2\n",
    "tags": "a: !!python/object/apply:os.system [id]\n",
    "not closed": "a: [\n",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_of_yaml_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_settings(BOMBS[name], "/c.yaml")
    assert str(caught.value).startswith("/c.yaml")
    assert "\n" not in str(caught.value)
    assert "secretword" not in str(caught.value)


def test_a_server_with_a_bomb_is_still_a_server(run: Callable[..., Examined], write: Write) -> None:
    for path in ("/etc/c/cassandra.yaml", "/etc/mongod.conf"):
        write(path, BOMBS["aliases of aliases"].encode())
    node = run("java", "-cp", "/etc/c", MAIN_CLASS)
    assert (node.flavour, node.facts, node.encryption.value) == ("cassandra", {"port": 0}, None)
    assert run("mongod", "--config", "/etc/mongod.conf", pid=200).flavour == "mongodb"


def test_ordinary_yaml_is_read() -> None:
    text = "a: &x {b: [1, 'yes', yes, Off, ~, ]}\nc: *x\n'e': !!str true\nf:\n"
    once = {"b": ["1", "yes", True, False, None]}
    assert read_settings(text, "/c") == {"a": once, "c": once, "e": "true", "f": None}


@pytest.mark.parametrize("number", ["9" * 300_000, "1:" * 100_000 + "1", "1_" * 100_000, "٣"])
def test_numbers_of_yaml_stay_words(
    number: str, run: Callable[..., Examined], write: Write
) -> None:
    assert read_settings(f"port: {number}\n", "/c") == {"port": number}
    write("/etc/c/cassandra.yaml", f"native_transport_port: {number}\n".encode())
    node = run("java", "-cp", "/etc/c", MAIN_CLASS)
    assert node.encryption.source == "native_transport_port is no port number"


# ---- tables of /proc -----------------------------------------------------------------------------

MAPPED = b"7f00-7f10 r-xp 00000000 fe:00 11 /tmp/"


def test_a_damaged_line_of_a_table_hides_no_other() -> None:
    for line in (
        b"7f00-7f10 r-xp 00000000 fe:00 11 ",
        b"7" * 100 + b"-7f10 r-xp 00000000 fe:00 11 /a",
        b"7f00-7f10 r-xp 00000000 fe:00 " + b"1" * 5000 + b" /a",
    ):
        maps = line + b"\n" + MAPPED + b"a\n"
        assert mapped_files(maps, "a") == [Mapping("/tmp/a", 0x7F00, 0x7F10)]
    for row in (
        b"0: 0100007F:0050 0:0 0A",
        b"0: 0100007F:FFFFF 00000000:0000 0A 0:0 0:0 0 0 0 77 1 0",
        b"0: 0100007F:0050 00000000:0000 0A 0:0 0:0 0 0 0 " + b"7" * 10_000 + b" 1 0",
    ):
        assert socket_ports(b"title\n" + row + b"\n", "0A") == {}
        assert list(unix_listeners(b"title\n" + row + b"\n")) == []


@pytest.mark.parametrize("line", [b" \n", b"0: a:1 b 0A\n", MAPPED + b"a" * 4000 + b"\n", b"f-"])
def test_a_table_of_four_megabytes_ends(line: bytes) -> None:
    table = line * ((4 << 20) // len(line))
    mapped_files(table, "[a-f]+-.*")
    assert socket_ports(table, "0A") == {}
    assert list(unix_listeners(table)) == []


# --------------------------------------------------------------------------------------------------
#
# Servers whose files and tables were damaged at random: an examination never goes wrong.
#
# The damage is always the same; another seed draws other damage.

SEED, EXAMINATIONS, CPU_SECONDS = 20261122, 60, 2.0
NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 63)
WORDS = (
    *(b"\0", b"-", b"=", b": ", b"&a ", b"*a", b"<<: ", b"[", b"{", b"'", b'"', b"#", b"\n", b" "),
    *(b"!include ", b"!includedir ", b"include_dir ", b"/etc/my.cnf", b"://[", b"%", b"9"),
)
FILES = {
    "etc/my.cnf": b"[mysqld]\nssl-cert = /c.pem # x\n!includedir /etc/d\nthread-handling='x'\n",
    "etc/d/a.cnf": b"!include /etc/my.cnf\nskip-ssl\n[server]\nplugin_load_add=x\n",
    "data/postgresql.conf": b"ssl = on # x\ninclude_dir 'c'\ninclude = 'a.conf'\nx.y='o''n' 5\n",
    "etc/mongod.conf": b"net:\n  port: 1\n  tls: {mode: requireTLS}\nsetParameter:\n  a: true\n",
    "c/cassandra.yaml": b"cluster_name: 'x'\nseeds: &a [1, ~, *a, {b: c}]\n? k\n: |\n  text\n",
}
COMMAND_LINES = {
    "mysqld": b"mysqld\0--defaults-file=/etc/my.cnf\0--ssl-cert=/c\0--thread-handling=2\0",
    "mariadbd": b"mariadbd\0",
    "postgres": b"postgres\0-D\0/data\0-c\0ssl=on\0--config_file=/data/postgresql.conf\0-l\0",
    "mongod": b"mongod\0-f\0/etc/mongod.conf\0--setParameter\0a=b\0",
    "java": b"java\0-cp\0/c:/a/*\0" + MAIN_CLASS.encode() + b"\0",
}


def damaged(chance: random.Random, content: bytes) -> bytes:
    text = bytearray(content)
    for _ in range(chance.randrange(8)):
        at = chance.randrange(len(text) + 1)
        match chance.randrange(5):
            case 0:
                del text[at : at + chance.randrange(1, 64)]
            case 1:
                text[at:at] = text[at : at + chance.randrange(1, 256)] * chance.choice((1, 2, 50))
            case 2:
                text[at:at] = chance.choice(WORDS) * chance.choice((1, 1, 3, 200))
            case 3:
                size = chance.choice((1, 2, 4, 8))
                number = chance.choice(NUMBERS) % (1 << 8 * size)
                text[at : at + size] = number.to_bytes(size, "little")
            case _:
                text[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(text[: 1 << 20])


@pytest.mark.parametrize("name", COMMAND_LINES)
def test_damaged_servers_are_examined(name: str, fake: FakeProc, toys: dict[str, Path]) -> None:
    chance = random.Random(SEED)
    executable = fake.host / name
    intact = (pack_symbols(toys[name]) if name == "mariadbd" else toys[name]).read_bytes()
    executable.write_bytes(intact)
    entry = fake.add(100, str(executable), cwd="/data")
    fake.listen(100, port=3306, unix="/run/x.sock")
    tables = {path: path.read_bytes() for path in (entry / "net").iterdir()}
    tables[entry / "maps"] = Path("/proc/self/maps").read_bytes()
    tables |= {fake.host / path: content for path, content in FILES.items()}
    tables[entry / "cmdline"] = COMMAND_LINES[name]
    for number in range(EXAMINATIONS):
        for path, content in tables.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(damaged(chance, content))
        executable.write_bytes(damaged(chance, intact) if number % 3 == 0 else intact)
        facts = replace(facts_of(executable, pid=100), any_protocol=number % 7 == 0, silent=True)
        before = time.process_time()
        problem = examine(DirectAccess(entry, fake.host), facts).problem
        assert not problem.startswith("it cannot be examined"), (number, problem)
        assert time.process_time() - before < CPU_SECONDS, number
