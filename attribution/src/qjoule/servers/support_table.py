# SPDX-License-Identifier: Apache-2.0
"""Writes docs/servers.md: how each server is traced, from the code that decides.

python -m qjoule.servers.support_table >docs/servers.md        (make docs)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from qjoule.contract import AttachMode
from qjoule.servers.choice import Choice, KernelFacts
from qjoule.servers.measured import MeasuredCost, known_costs
from qjoule.servers.plan import SERVERS_MAX
from qjoule.servers.registered import choose_attach_mode, documented
from qjoule.servers.support import Mode
from qjoule.servers.types import Fact, Server

_TODAY = KernelFacts(reads=True, sends=True, uprobes=True)
_EARLY = KernelFacts(reads=False, sends=False, uprobes=True, early=True)
#: Column titles, kernel, and why the symbol mode is impossible, for unusual cases.
_OTHERWISE = (
    ("Linux before 5.19", _EARLY, ""),
    ("function not found", _TODAY, "not found"),
    ("both", _EARLY, "not found"),
)
_COLUMNS = ("server", "tested", "mode", "attach mode", "exactness", "measured cost per query")
_HEAD = """# Servers

Made by `make docs` from the code that decides (`qjoule/servers`); a test compares.

What is traced how depends on the server, its configuration and the kernel. qjoule takes the
cheapest *attach mode* that is exact: **socket**, the serving thread's own traffic (Linux 6.3; on
x86-64 also 5.19 to 6.2, see [tracing](tracing.md#early-kernels)), or **symbol**, probes on the
server's functions (dearer). *Not exact*: sessions that are encrypted are counted, not seen; so are
sessions of MySQL that a client has compressed, where the attach mode is socket (`--attach symbol`
sees them). Where the attach mode is statistical, requests are counted, and their CPU time and
joules come by regression. *Not traced*: qjoule would have to guess, so it refuses; `qjoule doctor`
says why, and what is missing. *Tested*: the versions that the tests run for real, those of Debian's
newer suites in root trees of their own, as in a container (`make test-versions`); for MongoDB,
which no package registry has, they run a *stand-in* with its way to read and its functions'
signatures. The last three columns say what becomes of a server on a kernel before 5.19 and where
the symbol mode's functions are not found: a stripped executable, or a version that is not in the
second table.
"""
_COST = """CPU time that `qjoule record` adds to the server's own for each query: medians of
interleaved turns, with their 95 % intervals, by `make bench-attach-modes`. First what the *attach
mode* adds to a recording that leaves this server out, then the *whole*, with what any thread of the
machine pays while something is recorded. The *programs* are what of the attach mode's cost the
kernel counts for its BPF programs, which tells more than the medians where a query takes most of a
millisecond. The query is as cheap as one can be, alone on its connection, so that each wakes a
thread and puts it to sleep again. An empty cell was not measured; of the symbol mode, servers that
keep a thread for each connection were.
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

If a client of such a server runs on the same host under `qjoule run`, its calls are all that is
known of requests, and that is the attach mode **tag**, *not exact*: calls by their tags (`--by
tag:endpoint`), with the latency that the client saw, and joules by regression of what the server's
threads used on the number of calls, with an interval. What calls do not explain stays with the
threads. Client and server must share a network namespace, and the kernel be Linux 5.14. So it is
with encrypted sessions of a known server on the socket mode, in recordings.

Children that run the same executable are the server's, others are not. With `--generic` a restart
is followed: a process is the server again if it has its executable and arguments. If the server has
written a title over its arguments, its executable alone counts if the title begins with its name
(`nginx: master process`), and else a restart is not seen. `qjoule doctor` says which.
"""


def document() -> str:
    """Returns the whole of docs/servers.md."""
    costs = known_costs()
    return "\n".join(
        [
            _HEAD,
            *_servers(costs),
            "",
            "## Cost per query",
            "",
            _COST,
            *_machines(costs),
            "## Versions, and the functions of the symbol mode",
            "",
            *_versions(),
            "",
            _TAIL.format(servers=SERVERS_MAX),
        ]
    )


def _servers(costs: Mapping[tuple[str, str], MeasuredCost]) -> Iterator[str]:
    titles = (*_COLUMNS, *(title for title, _, _ in _OTHERWISE))
    yield from _row(*titles)
    yield from _row(*["---"] * len(titles))
    for server in documented():
        pools = any(mode.thread_pool for mode in server.modes)
        for mode in server.modes:
            choice = _choice(mode, server.flavour, _TODAY, "")
            cost = costs.get((server.flavour, choice.attach_mode.name.lower()))
            if choice.attach_mode is AttachMode.SYMBOL and pools and mode.thread_pool is not False:
                cost = None
            yield from _row(
                server.name,
                ", ".join(server.tested),
                mode.title,
                _attach_mode(choice),
                _exactness(choice),
                _cost_text(cost) if cost else "",
                *(
                    _described(_choice(mode, server.flavour, kernel, problem))
                    for _, kernel, problem in _OTHERWISE
                ),
            )


def _choice(mode: Mode, flavour: str, kernel: KernelFacts, symbol_problem: str) -> Choice:
    """Returns how qjoule traces such a server on such a kernel (see `choose_attach_mode`)."""
    server = Server(
        id=0,
        flavour=flavour,
        version="",
        exe_path=Path("/"),
        exe_name="/",
        exe_id=(0, 0),
        tgids=(),
        ports=(),
        sockets=(),
        encryption=Fact(mode.encryption, ""),
        thread_pool=Fact(mode.thread_pool, ""),
    )
    if mode.wanted is AttachMode.AGENT:
        return choose_attach_mode(server, kernel, symbol_problem, agent=True)
    return choose_attach_mode(server, kernel, symbol_problem, mode.wanted)


def _machines(costs: Mapping[tuple[str, str], MeasuredCost]) -> Iterator[str]:
    """Yields where and when each cost was measured, and of which query."""
    if not costs:
        yield "None has been measured for this table yet.\n"
        return
    yield from _row("server", "attach mode", "cost", "query", "measured on")
    yield from _row(*["---"] * 5)
    for cost in costs.values():
        where = f"{cost.cpu}, Linux {cost.kernel}, {cost.date}"
        name = f"{_name(cost.server)} {cost.version}"
        yield from _row(name, cost.attach_mode, _cost_text(cost), f"`{cost.query}`", where)
    yield ""


def _name(flavour: str) -> str:
    return next((product.name for product in documented() if product.flavour == flavour), flavour)


def _versions() -> Iterator[str]:
    yield from _row("versions", "functions", "run in the tests")
    yield from _row("---", "---", "---")
    listed: set[str] = set()
    for server in documented():
        for functions in server.functions:
            if functions.versions not in listed:  # flavours may share functions
                names = ", ".join(f"`{name}`" for name in functions.names)
                yield from _row(
                    functions.versions, names or "none: no symbol mode", functions.tested
                )
            listed.add(functions.versions)


def _described(choice: Choice) -> str:
    exactness = _exactness(choice)
    return f"{_attach_mode(choice)}, {exactness}" if exactness else _attach_mode(choice)


def _attach_mode(choice: Choice) -> str:
    if choice.attach_mode is not AttachMode.NONE:
        return choice.attach_mode.name.lower()
    return "by thread" if choice.by_thread else "not traced"


def _exactness(choice: Choice) -> str:
    if choice.attach_mode is not AttachMode.NONE:
        return "exact" if choice.exact else "not exact"
    return "no queries" if choice.by_thread else ""


def _cost_text(cost: MeasuredCost) -> str:
    attach_mode = _microseconds(cost.cost_ns, cost.low_ns, cost.high_ns)
    whole = _microseconds(cost.whole_ns, cost.whole_low_ns, cost.whole_high_ns)
    programs = "" if cost.programs_ns is None else f", programs {cost.programs_ns / 1000:.2f} µs"
    return f"{attach_mode}, whole {whole}{programs}"


def _microseconds(*figures_ns: int) -> str:
    median, low, high = (f"{ns / 1000:.2f}" for ns in figures_ns)
    return f"{median} µs ({low} to {high})"


def _row(*cells: str) -> Iterator[str]:
    yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(document(), end="")
