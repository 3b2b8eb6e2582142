# SPDX-License-Identifier: Apache-2.0
"""The parsers of servers' files, each with real inputs for `servers_fuzz.py` to damage."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from qjoule.errors import QjouleError
from qjoule.servers.access import FileIdentity, Opened, ProcFile, Unreadable
from qjoule.servers.candidate import Candidate
from qjoule.servers.cassandra.find import MAIN_CLASS, cassandra_version, configuration, is_cassandra
from qjoule.servers.elf import Executable, Symbol, open_executable
from qjoule.servers.examine import examine
from qjoule.servers.examined import Examined, Facts
from qjoule.servers.examined_json import examined_from_json
from qjoule.servers.ferretdb.settings import encryption as ferretdb_encryption
from qjoule.servers.identify import identify
from qjoule.servers.jvm.hotspot import HotSpot, Memory
from qjoule.servers.listening import socket_ports, unix_listeners
from qjoule.servers.maps import mapped_files
from qjoule.servers.mysql.vocabulary import vocabulary
from qjoule.servers.postgres.settings import encryption as postgres_encryption
from qjoule.servers.redis.settings import is_redis_server
from qjoule.servers.resolve import resolve
from qjoule.servers.restart import restart_of
from qjoule.servers.settings_yaml import read_settings
from qjoule.servers.voltdb.find import is_voltdb, layout_of
from servers.examined import settings_of
from servers.hostile import PROGBITS, STRTAB, SYMTAB, Part, ToyMemory, elf, symbol, vm_structs
from servers.toy_elf import MARIADB_10_11, MYSQL_8, POSTGRES, pack_symbols, toy_server
from servers.toy_mysql import toy_mysql


@dataclass
class FakeAccess:
    """A candidate made of bytes."""

    files: dict[str, bytes]
    proc_files: dict[ProcFile, bytes]
    opened: Callable[[], Opened] | None = None  #: its executable

    def executable(self) -> Opened:
        if self.opened is None:
            raise Unreadable("it has none")
        return self.opened()

    def proc(self, name: ProcFile) -> bytes:
        return self.proc_files.get(name, b"")

    def memory(self) -> int:
        raise Unreadable("it has none")

    def file(self, path: str) -> bytes | None:
        return self.files.get(path)

    def names(self, path: str) -> list[str]:
        return [name.rpartition("/")[2] for name in self.files if name.startswith(path)]

    def sockets(self) -> frozenset[int]:
        return frozenset(range(100))

    def threads(self) -> list[str]:
        return []

    def mapped(self, start: int, end: int) -> Opened:
        raise Unreadable(f"nothing at {start:x}-{end:x}")

    def working_directory(self) -> str:
        return "/data"

    def file_id(self, path: str) -> tuple[int, int] | None:
        return (1, len(path))

    def network(self) -> str:
        return ""


@dataclass
class Target:
    """Real inputs and their parser. `words` are inserted into inputs unchanged."""

    inputs: list[bytes]
    read: Callable[[bytes], None]
    words: tuple[bytes, ...] = ()


def elf_target(directory: Path) -> Target:
    packed = pack_symbols(toy_server(directory / "p", [MARIADB_10_11], banner="10.11.1-MariaDB"))
    postgres = toy_server(directory / "q", POSTGRES, banner="PostgreSQL 15.20 (Debian)")
    name = MYSQL_8.encode() + b"\0"
    small = elf(
        [
            Part(".rodata", PROGBITS, b"\0mysql_native_password\0MySQL 8.0.36 \0"),
            Part(".symtab", SYMTAB, symbol(1) * 4, link=3),
            Part(".strtab", STRTAB, b"\0" + name * 4),
        ]
    )
    path = directory / "damaged"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        for flavour in ("mysql", "postgres"):
            with suppress(QjouleError):
                file = os.open(path, os.O_RDONLY)
                identity = FileIdentity(0, 0, len(content), time.time_ns(), 0, 0, 0)
                executable = open_executable(Opened(file, 0, identity, "damaged"))
                identify(executable)
                candidate = Candidate(FakeAccess({}, {}), "x")
                candidate.__dict__["executable"] = executable
                resolve(candidate, flavour, "15.1")
                executable.constant(b"x")
                vocabulary(executable, flavour)

    words = toy_mysql(directory / "w").read_bytes()
    return Target([packed.read_bytes(), postgres.read_bytes(), words, small, small], read)


def yaml_target(_: Path) -> Target:
    real = b"cluster_name: 'x'\nnative_transport_port: 9042\nclient_encryption_options:\n"
    real += b"  enabled: false\n  # c\nseeds: &a [1, ~, *a, {b: c}]\n- x\n? k\n: |\n  text\n"
    mongod = b"net:\n  port: 1\n  tls: {mode: requireTLS}\nsetParameter:\n  a: true\nb: 'c'\n"

    def read(content: bytes) -> None:
        with suppress(QjouleError):
            read_settings(content.decode(errors="replace"), "/c")
        line = b"mongod\0--config\0/mongod.conf\0"
        settings_of(_candidate({"/mongod.conf": content}, line), "mongodb")
        line = b"java\0-cp\0/c\0" + MAIN_CLASS.encode() + b"\0"
        configuration(_candidate({"/c/cassandra.yaml": content}, line))

    words = (b"*a", b"&a ", b"<<: ", b"[", b"{", b"- ", b": ", b"\n", b"  ", b"!!int ", b"9")
    return Target([real, mongod], read, (*words, b"'", b'"', b"|\n", b"%YAML 1.1\n", b"---\n"))


def my_cnf_target(_: Path) -> Target:
    real = b"[mysqld]\nssl-cert = /c.pem # x\n!includedir /etc/d\n!include /etc/my.cnf\nskip-ssl\n"
    real += b"[server]\nthread-handling='pool-of-threads'\nplugin_load_add=x\n"

    def read(content: bytes) -> None:
        files = {"/etc/my.cnf": content, "/etc/d/a.cnf": content, "/x": content}
        settings_of(_candidate(files, b"mysqld\0"), "mysql", "8.0.1")

    words = (b"!include ", b"!includedir ", b"/etc/d", b"/x", b"[mysqld]\n", b"'", b'"', b"#")
    return Target([real], read, (*words, b"\n"))


def postgresql_conf_target(_: Path) -> Target:
    real = b"ssl = on # x\ninclude_dir 'conf.d'\ninclude = 'a.conf'\nssl='o''n'\nx.y  5\n"

    def read(content: bytes) -> None:
        names = ("postgresql.conf", "postgresql.auto.conf", "a.conf", "conf.d/1.conf")
        files = {f"/data/{name}": content for name in names}
        postgres_encryption(_candidate(files, b"postgres\0"))

    words = (b"include ", b"include_dir ", b"'a.conf'", b"'conf.d'", b"'", b"''", b" ", b"=", b"\n")
    return Target([real], read, words)


def command_line_target(_: Path) -> Target:
    lines = [
        b"mysqld\0--defaults-file=/x\0--ssl-cert=/c\0--thread-handling=2\0",
        b"postgres\0-D\0/data\0-c\0ssl=on\0--config_file=/x\0-l\0",
        b"java\0-cp\0/a:/b/*\0-Dcassandra.config=file:///x\0" + MAIN_CLASS.encode() + b"\0",
        b"java\0org.voltdb.VoltDB\0probe\0port\0[::1]:21212\0",
        b"mongod\0-f\0/x\0--setParameter\0a=b\0",
        b"redis-server *:6379 [sentinel]\0\0\0",
        b"PGDATA=/x\0HOME=/y\0MYSQL_HOME=/z\0CLASSPATH=/a:/b\0",
    ]

    def read(content: bytes) -> None:
        one = _candidate({"/x": b"ssl=on\n"}, content)
        restart_of(one)
        settings_of(one, "mariadb", "10.11.1")
        postgres_encryption(one)
        settings_of(one, "mongodb")
        ferretdb_encryption(one)
        is_redis_server(one)
        java = _candidate({"/x": b"a: 1\n"}, content)
        if is_cassandra(java):
            configuration(java)
        cassandra_version(java)
        is_voltdb(java)
        for generic in (False, True):
            facts = Facts("/bin/java", (1, 1), 5, any_protocol=generic, silent=True)
            problem = examine(java.access, facts).problem
            assert not problem.startswith("it cannot be examined"), problem

    return Target(lines, read, (b"\0", b"-", b"=", b":", b"/", b"://[", b"%", b"9", b"port\0"))


def jvm_target(directory: Path) -> Target:
    memory = ToyMemory(directory / "mem")
    zero, head = memory.words(0), memory.words(4096 + 8)
    rows = [
        ("ClassLoaderDataGraph", "_head", True, 0, head),
        ("JVMFlag", "flags", True, 0, zero),
        ("JVMFlag", "numFlags", True, 0, head),
        ("ClassLoaderData", "_next", False, 0, 0),
        ("ClassLoaderData", "_klasses", False, 8, 0),
        ("Klass", "_name", False, 0, 0),
        ("Klass", "_next_link", False, 8, 0),
        ("Symbol", "_length", False, 0, 0),
        ("Symbol", "_body", False, 2, 0),
        ("JVMFlag", "_name", False, 0, 0),
        ("JVMFlag", "_addr", False, 8, 0),
    ]
    variables = vm_structs(memory, rows, [("JVMFlag", 16), ("ConstantPool", 16)])

    class Library:
        path = "libjvm.so"

        def variable(self, name: str) -> Symbol | None:
            return Symbol(name, variables[name], 8, ".dynsym") if name in variables else None

    def read(content: bytes) -> None:
        memory.path.write_bytes(content)
        descriptor = os.open(memory.path, os.O_RDONLY)
        try:
            with suppress(QjouleError):
                one = Memory(descriptor)
                layout_of(HotSpot(one, cast(Executable, Library()), 0), one)
        finally:
            os.close(descriptor)

    pointers = tuple(at.to_bytes(8, "little") for at in (head, zero, 4096, 5000, 1 << 47))
    return Target([bytes(memory.content)], read, pointers)


def maps_target(_: Path) -> Target:
    real = Path("/proc/self/maps").read_bytes()

    def read(content: bytes) -> None:
        for pattern in (".*", r"libjvm\.so", r"(?:voltdb-[0-9a-f-]+-)?libvoltdb-([0-9.]*)\.so"):
            mapped_files(content, pattern)

    return Target([real], read, (b"/", b"-", b"\n", b"voltdb-", b"0", b" (deleted)"))


def net_target(_: Path) -> Target:
    names = ("tcp", "tcp6", "udp", "unix")
    inputs = [Path(f"/proc/self/net/{name}").read_bytes()[: 1 << 16] for name in names]
    inputs.append(b"t\n0: 0100007F:0050 0:0 0A 0:0 0:0 0 0 0 77 1 0\n")
    inputs.append(b"t\n0: 00000002 00000000 00010000 0001 01 77 /run/x\n")

    def read(content: bytes) -> None:
        for state in ("0A", "07"):
            socket_ports(content, state)
        list(unix_listeners(content))

    return Target(inputs, read, (b":", b" ", b"\n", b"0A", b"9", b"F"))


def json_target(directory: Path) -> Target:
    found: list[Examined] = [Examined(), Examined(problem="x")]
    for number, functions in enumerate(([MYSQL_8], POSTGRES)):
        path = toy_server(directory / str(number), functions)
        file = Candidate(FakeAccess({}, {}), "x")
        file.__dict__["executable"] = open_executable(path)
        flavour = ("mysql", "postgres")[number]
        found.append(Examined(flavour, "15.1", resolution=resolve(file, flavour, "15.1")))

    def read(content: bytes) -> None:
        with suppress(QjouleError):
            examined_from_json(content)

    inputs = [json.dumps(one.to_json()).encode() for one in found]
    words = (b"null", b"[", b"{", b"9", b'"a": ', b"true", b"-", b".", b"\\ud800")
    return Target(inputs, read, words)


def _candidate(files: dict[str, bytes], command_line: bytes) -> Candidate:
    everywhere = {ProcFile.CMDLINE: command_line, ProcFile.ENVIRON: command_line}
    return Candidate(FakeAccess(files, everywhere | {ProcFile.COMM: b"x\n"}), "/bin/java", 5)


PARSERS: dict[str, Callable[[Path], Target]] = {
    "elf": elf_target,
    "yaml": yaml_target,
    "my.cnf": my_cnf_target,
    "postgresql.conf": postgresql_conf_target,
    "cmdline": command_line_target,
    "jvm": jvm_target,
    "maps": maps_target,
    "net": net_target,
    "json": json_target,
}
