# SPDX-License-Identifier: Apache-2.0
"""Servers whose files and tables were damaged at random: an examination never goes wrong.

The damage is always the same; another seed draws other damage.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.servers.cassandra.find import MAIN_CLASS
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.examine import examine
from servers.fake_proc import FakeProc
from servers.hostile import facts_of
from servers.toy_elf import pack_symbols

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
    whole = (pack_symbols(toys[name]) if name == "mariadbd" else toys[name]).read_bytes()
    executable.write_bytes(whole)
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
        executable.write_bytes(damaged(chance, whole) if number % 3 == 0 else whole)
        facts = replace(facts_of(executable, pid=100), any_protocol=number % 7 == 0, silent=True)
        before = time.process_time()
        problem = examine(DirectAccess(entry, fake.host), facts).problem
        assert not problem.startswith("it cannot be examined"), (number, problem)
        assert time.process_time() - before < CPU_SECONDS, number
