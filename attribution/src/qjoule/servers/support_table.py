"""Writes docs/servers.md: what is traced how, by asking the code that decides.

python -m qjoule.servers.support_table >docs/servers.md        (make docs)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from qjoule.contract import Rung
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.plan import SERVERS_MAX
from qjoule.servers.rungs import Choice, choose_rung
from qjoule.servers.signatures import MYSQL_SIGNATURES, POSTGRES_FUNCTIONS, POSTGRES_MAJORS
from qjoule.servers.types import Fact, Flavour, Server

#: Versions that the tests run for real, as discovery reads them from the executable.
RUN_IN_TESTS = {
    Flavour.MARIADB: "10.11",
    Flavour.MYSQL: "8.0.15",
    Flavour.POSTGRES: "15",
    Flavour.REDIS: "7.0",
    Flavour.CASSANDRA: "5.0.9",
}
NAMES = {
    Flavour.MARIADB: "MariaDB",
    Flavour.MYSQL: "MySQL",
    Flavour.POSTGRES: "PostgreSQL",
    Flavour.REDIS: "Redis",
    Flavour.CASSANDRA: "Cassandra",
    Flavour.GENERIC: "any other process",
}
_PLAIN, _UNKNOWN, _TLS, _POOL = "plain text", "configuration unknown", "TLS possible", "thread pool"
_IO_THREADS = "io-threads"
#: (encryption, thread pool or io-threads) of each mode; None: it could not be found out.
_MODES: dict[str, tuple[bool | None, bool | None]] = {
    _PLAIN: (False, False),
    _TLS: (True, False),
    _POOL: (False, True),
    f"{_POOL}, {_TLS}": (True, True),
    _IO_THREADS: (False, True),
    _UNKNOWN: (None, None),
}
_MODES_OF_MYSQL = (_PLAIN, _TLS, _POOL, f"{_POOL}, {_TLS}", _UNKNOWN)
_MODES_OF = {
    Flavour.MARIADB: _MODES_OF_MYSQL,
    Flavour.MYSQL: _MODES_OF_MYSQL,
    Flavour.POSTGRES: (_PLAIN, _TLS, _UNKNOWN),  # a process for each connection, always
    Flavour.REDIS: (_PLAIN, _TLS, _IO_THREADS, _UNKNOWN),
    Flavour.CASSANDRA: (_PLAIN, _TLS, _UNKNOWN),
    Flavour.GENERIC: (_UNKNOWN,),
}
_TODAY = KernelFacts(recv_tracepoint=True, send_tracepoint=True, uprobes=True)
_BEFORE_6_3 = KernelFacts(recv_tracepoint=False, send_tracepoint=False, uprobes=True)
#: Column titles, kernel, and why there is no symbol rung.
_CIRCUMSTANCES = (
    ("Linux 6.3 and later", _TODAY, ""),
    ("before 6.3", _BEFORE_6_3, ""),
    ("6.3, function not found", _TODAY, "not found"),
    ("before, not found", _BEFORE_6_3, "not found"),
)
_HEAD = """# Servers

Made by `make docs` from the code that decides (`qjoule/servers`); a test compares.

What is traced how depends on the server, its configuration and the kernel. qjoule takes the
cheapest *rung* that is exact: **socket**, the serving thread's own traffic (needs the tracepoint
`sock_recv_length`, Linux 6.3), or **symbol**, probes on the server's functions (about ten times as
dear). *Not exact*: sessions that are encrypted, and requests that a Redis lets its io-threads read,
are counted, not seen. *Not traced*: qjoule would have to guess, so it refuses; `qjoule doctor` says
why, and what is missing. *Function not found*: a stripped executable, or a version that is not in
the second table.
"""
_TAIL = """## Any other server

`--generic` traces every other process that listens (TCP, UDP, unix sockets, in whatever network
namespace), `--pid` any process. There are no queries: CPU time and energy are rows of the server's
background, by the name of the thread with the number of a worker left out (`worker-12`: `worker-?`,
`GC Thread#3`: `GC Thread#?`). At most {servers} servers are traced at a time: known ones first,
then those with ports, who used most CPU time before who used less; who is left out is named.
Nothing is hooked for them beyond context switches and the tasks' fork, exec, rename and exit, which
are hooked anyway. With `--generic`, what is *not traced* above is traced so too. A thread's name
has 15 bytes (`Native-Transpor`), and the kernel knows no other.

Children that run the same executable are the server's, others are not. With `--generic` a restart
is followed: a process is the server again if it has its executable and arguments. If the server has
written a title over its arguments, its executable alone counts if the title begins with its name
(`nginx: master process`), and else a restart is not seen. `qjoule doctor` says which.
"""


def document() -> str:
    """The whole of docs/servers.md."""
    return "\n".join(
        [
            _HEAD,
            *_rungs(),
            "",
            "## Versions, and the functions of the symbol rung",
            "",
            *_versions(),
            "",
            _TAIL.format(servers=SERVERS_MAX),
        ]
    )


def _rungs() -> Iterator[str]:
    yield from _row("server", "mode", *(title for title, _, _ in _CIRCUMSTANCES))
    yield from _row(*["---"] * (2 + len(_CIRCUMSTANCES)))
    for flavour, modes in _MODES_OF.items():
        for mode in modes:
            encryption, pool = _MODES[mode]
            server = _server(flavour, encryption, False if flavour is Flavour.POSTGRES else pool)
            cells = (
                _said(choose_rung(server, kernel, problem)) for _, kernel, problem in _CIRCUMSTANCES
            )
            shown = "all" if flavour is Flavour.GENERIC else mode
            yield from _row(NAMES[flavour], shown, *cells)


def _versions() -> Iterator[str]:
    yield from _row("versions", "functions", "run in the tests")
    yield from _row("---", "---", "---")
    for versions, name, _role in MYSQL_SIGNATURES:
        tested = [
            f"{NAMES[flavour]} {RUN_IN_TESTS[flavour]}"
            for flavour in (Flavour.MARIADB, Flavour.MYSQL)
            if versions.startswith(f"{NAMES[flavour]} from")  # both lines end in the newest
        ]
        yield from _row(versions, f"`{name}`", ", ".join(tested) or "no")
    majors = f"PostgreSQL {POSTGRES_MAJORS[0]} to {POSTGRES_MAJORS[-1]}"
    functions = ", ".join(f"`{name}`" for name in POSTGRES_FUNCTIONS.values())
    yield from _row(majors, functions, f"PostgreSQL {RUN_IN_TESTS[Flavour.POSTGRES]}")
    for flavour in (Flavour.REDIS, Flavour.CASSANDRA):
        run = f"{NAMES[flavour]} {RUN_IN_TESTS[flavour]}"
        yield from _row(NAMES[flavour], "none: no symbol rung", run)


def _said(choice: Choice) -> str:
    if choice.rung is not Rung.NONE:
        return f"{choice.rung.name.lower()}, {'exact' if choice.exact else 'not exact'}"
    return "by thread, no queries" if choice.by_thread else "not traced"


def _server(flavour: Flavour, encryption: bool | None, pool: bool | None) -> Server:
    return Server(
        id=0,
        flavour=flavour,
        version="",
        exe_path=Path("/"),
        exe_name="/",
        exe_id=(0, 0),
        tgids=(1,),
        ports=(),
        sockets=(),
        encryption=Fact(encryption, ""),
        thread_pool=Fact(pool, ""),
    )


def _row(*cells: str) -> Iterator[str]:
    yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(document(), end="")
