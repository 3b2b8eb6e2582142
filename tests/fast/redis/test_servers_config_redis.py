# SPDX-License-Identifier: Apache-2.0
"""A Redis's capabilities, read from its executable, sockets, memory and threads."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from qjoule.servers.candidate import Candidate
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.elf import open_executable
from qjoule.servers.processes import Listening
from qjoule.servers.redis.support import encryption as redis_encryption
from qjoule.servers.redis.support import io_threads as redis_io_threads
from qjoule.servers.types import Fact
from servers.fake_proc import FakeProc, candidate
from servers.toy_elf import toy_server

BASE = 0x40000


def directory_of(process: Candidate) -> Path:
    assert isinstance(process.access, DirectAccess)
    return process.access.directory


TCP, UNIX = Listening(tcp=(6379,), inodes=frozenset({1})), Listening(unix=("/s",))
FIXED = ("-no-pie",)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("redis")
    tls, context = "tls-cert-file", ["redis_tls_ctx"]
    reads, options = "io-threads-do-reads", ["static_configs[64]", "server[4]"]
    return {
        "without TLS": toy_server(directory / "a", []),
        "with TLS": toy_server(directory / "b", [], banner=tls, variables=context),
        "fixed": toy_server(directory / "c", [], banner=tls, variables=context, flags=FIXED),
        "Valkey's": toy_server(
            directory / "g", [], banner=tls, variables=["valkey_tls_ctx"], flags=FIXED
        ),
        "unexported": toy_server(directory / "d", [], banner=tls),
        "options": toy_server(directory / "e", [], banner=reads, variables=options),
        "fixed options": toy_server(
            directory / "f", [], banner=reads, variables=options, flags=FIXED
        ),
        "options of 8.0": toy_server(directory / "h", [], banner="io-threads", variables=options),
    }


@pytest.fixture
def start(tmp_path: Path, builds: dict[str, Path]) -> Callable[..., Candidate]:
    fake = FakeProc(tmp_path)

    def started(build: str, context: int | None = 0, mapped: bool = True) -> Candidate:
        """A process with this pointer in its memory; None: its memory ends before the pointer."""
        path = builds[build]
        entry = fake.add(500, str(path))
        line = f"{BASE:012x}-{BASE + 4096:012x} r--p 00000000 08:01 1    {path}\n"
        (entry / "maps").write_text(line if mapped else "")
        executable = open_executable(path)
        variable = executable.variable("redis_tls_ctx") or executable.variable("valkey_tls_ctx")
        address = (variable.vaddr if variable else 0) + BASE * (not executable.is_fixed)
        with (entry / "mem").open("wb") as memory:
            memory.seek(address)
            memory.write(b"" if context is None else context.to_bytes(8, "little"))
        return candidate(entry, str(path))

    return started


@pytest.mark.parametrize("build", ["with TLS", "fixed", "Valkey's"])
@pytest.mark.parametrize(("context", "encrypted"), [(0, False), (0x7F00DEAD0000, True)])
def test_its_memory_says_whether_tls_is_configured(
    start: Callable[..., Candidate], build: str, context: int, encrypted: bool
) -> None:
    fact = redis_encryption(start(build, context), TCP)
    assert fact == Fact(encrypted, f"TLS is {'' if encrypted else 'not '}configured")


def test_unix_sockets_have_no_tls(start: Callable[..., Candidate]) -> None:
    process = start("with TLS", 1)
    assert redis_encryption(process, UNIX).value is False
    assert redis_encryption(process, Listening(tcp=(6379,), unix=("/s",))).value is True
    assert redis_encryption(process, Listening()).value is True  # its sockets are not visible


@pytest.mark.parametrize(
    ("build", "options", "why"),
    [
        ("without TLS", {"context": None}, "built without TLS"),
        ("unexported", {}, "its executable lacks the symbol redis_tls_ctx"),
        ("with TLS", {"mapped": False}, "its executable is not mapped"),
        ("with TLS", {"context": None}, "nothing is at redis_tls_ctx"),
    ],
)
def test_what_cannot_be_read_is_not_known(
    start: Callable[..., Candidate], build: str, options: dict[str, object], why: str
) -> None:
    fact = redis_encryption(start(build, **options), TCP)
    assert fact.value is (False if build == "without TLS" else None)
    assert fact.source.endswith(why)


def have_threads(process: Candidate, *names: str) -> None:
    for number, comm in enumerate(("redis-server", *names)):
        task = directory_of(process) / "task" / str(500 + number)
        task.mkdir(parents=True)
        (task / "comm").write_text(comm + "\n", errors="surrogateescape")


def keep_options(
    process: Candidate,
    value: int,
    name_shift: int = 0,
    points_at: int = 4,
    option: bytes = b"io-threads-do-reads",
) -> None:
    """The server's memory contains a table of options, one row of 4 words each, and this value in
    `server`.
    """
    executable = open_executable((directory_of(process) / "exe").resolve())
    base = BASE * (not executable.is_fixed)
    table, settings = executable.variable("static_configs"), executable.variable("server")
    name = executable.constant(option)
    assert table is not None
    assert settings is not None
    assert name is not None
    server = settings.vaddr + base
    rows = [(name + base - 1, 0, 0, server), (name + base + name_shift, 7, 0, server + points_at)]
    with (directory_of(process) / "mem").open("r+b") as memory:
        memory.seek(table.vaddr + base)
        memory.write(b"".join(struct.pack("<4Q", *row) for row in rows).ljust(table.size, b"\0"))
        memory.seek(server)
        memory.write(struct.pack("<iiQQQ", 5, value, 0, 0, 0))


@pytest.mark.parametrize(
    ("build", "option", "value", "do"),
    [
        ("options", b"io-threads-do-reads", 0, "only write"),
        ("fixed options", b"io-threads-do-reads", 1, "read and write"),
        ("options of 8.0", b"io-threads", 3, "read and write"),
    ],
)
def test_its_memory_says_whether_io_threads_read(
    start: Callable[..., Candidate], build: str, option: bytes, value: int, do: str
) -> None:
    process = start(build)
    have_threads(process, "io_thd_1", "io_thd_2", "fil d'arri\udcc3")  # cut at 15 bytes
    keep_options(process, value, option=option)
    assert redis_io_threads(process) == Fact(bool(value), f"2 io-threads, which {do}")
