"""Which rung a server gets: the cheapest that is exact for its configuration.

The socket rung sees a query in the traffic of the serving thread. It is exact where one thread
serves a connection from request to reply and the bytes are plain. Else probes on the server's
own functions (the symbol rung) are taken, which cost more per query.
"""

from __future__ import annotations

from dataclasses import dataclass

from qjoule.contract import Rung
from qjoule.errors import QjouleError
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.types import Flavour, Server

_NO_RECV = "the kernel lacks the tracepoint sock_recv_length (6.3)"
_OWN_STAGES = "a request goes from stage to stage, each with threads of its own"
_OTHER_THREADS = "procedures run on other threads than connections"
_NO_SEND = "the kernel lacks the tracepoint sock_send_length (6.3)"


@dataclass(frozen=True)
class Choice:
    """`why` is one line; `other` says what the other rung would need."""

    rung: Rung  #: NONE: no query boundaries; `why` says what is missing
    why: str
    other: str = ""
    exact: bool = True
    by_thread: bool = False  #: traced without query boundaries: CPU time by thread name

    @property
    def traced(self) -> bool:
        return self.rung is not Rung.NONE or self.by_thread


_BY_THREAD = Choice(
    Rung.NONE,
    "where its queries begin is not known: CPU time and energy by thread name",
    by_thread=True,
)

_WITH_AGENT = Choice(
    Rung.AGENT, "as asked for: an agent in its JVM tells which thread works for which request"
)
_NEEDS_AGENT = "agent: exact, and dearer: with --agent, which changes its code while it runs"


def choose_rung(
    server: Server,
    kernel: KernelFacts,
    symbol_problem: str,
    wanted: Rung | None = None,
    shared_executable: str = "",
    *,
    agent: bool = False,
) -> Choice:
    """Decide for one server.

    Args:
        symbol_problem: why the symbol rung is not possible, empty when it is.
        wanted: the user's choice.
        shared_executable: why another server that runs the same file needs probes in it.
        agent: qjoule's agent has been put into it.

    Raises:
        QjouleError: the server runs and the wanted rung is not possible.
    """
    if server.flavour is Flavour.GENERIC:
        return _BY_THREAD
    if agent:
        return _WITH_AGENT
    if server.flavour is Flavour.CASSANDRA:
        return _cassandra_rung(server, kernel, wanted)
    if server.flavour is Flavour.VOLTDB:
        return _voltdb_rung(server, kernel, symbol_problem, wanted)
    without_symbols = {Flavour.REDIS: _redis_rung, Flavour.FERRETDB: _ferretdb_rung}
    if rung := without_symbols.get(server.flavour):
        return rung(server, kernel, wanted)
    return _sql_rung(server, kernel, symbol_problem, wanted, shared_executable)


def _sql_rung(
    server: Server,
    kernel: KernelFacts,
    symbol_problem: str,
    wanted: Rung | None,
    shared_executable: str,
) -> Choice:
    hidden = _what_hides_queries(server)
    missing = "" if kernel.recv_tracepoint else _NO_RECV
    moves = _what_moves_queries(server)
    if not kernel.uprobes:
        symbol_problem = symbol_problem or "the kernel has no uprobes"
    if wanted is not None:
        return _as_wanted(server, wanted, symbol_problem, missing or moves, hidden)
    blocked = missing or moves or hidden or shared_executable
    if not blocked:
        return Choice(Rung.SOCKET, _socket_is_exact(server), _symbol_needs(symbol_problem))
    if not symbol_problem:
        return Choice(Rung.SYMBOL, blocked, _socket_needs(server, missing))
    if missing or moves:
        return Choice(Rung.NONE, f"{missing or moves}; and {symbol_problem}", exact=False)
    # Encrypted sessions are recognised and counted as loss, so plain ones can be had honestly.
    why = f"plain text is seen; sessions that are encrypted are counted, not seen: {blocked}"
    return Choice(Rung.SOCKET, why, _symbol_needs(symbol_problem), exact=False)


def _redis_rung(server: Server, kernel: KernelFacts, wanted: Rung | None) -> Choice:
    """Commands take less time than a probe on each would: there are the sockets, or nothing.

    Where io-threads read, requests are seen, and the main thread executes what several have read
    without a system call between. TLS sessions are recognised when they come, and counted; so are
    requests that io-threads read although it could not be known that they do.
    """
    missing = "" if kernel.recv_tracepoint else _NO_RECV
    if not missing and not kernel.send_tracepoint:
        missing = _NO_SEND
    threads = server.thread_pool
    if wanted is not None and not (threads.value and wanted is Rung.STATISTICAL):
        others = threads.source if threads.value else ""
        return _as_wanted(server, wanted, "Redis has none", missing or others, "")
    if missing:
        return Choice(Rung.NONE, missing, exact=False)
    if threads.value:
        why = f"requests are counted and timed; {threads.source}, so none owns CPU time"
        if server.encryption.value is not False:
            why += "; those with TLS would be counted as loss, not seen"
        return Choice(Rung.STATISTICAL, why, "symbol: Redis has none", exact=False)
    why = "one thread executes all commands; those of one read are one request"
    doubts = []
    if server.encryption.value is not False:
        doubts.append(f"with TLS ({server.encryption.source})")
    if threads.value is None:
        doubts.append(f"that io-threads read ({threads.source})")
    if doubts:
        why += f"; requests {' or '.join(doubts)} would be counted as loss, not seen"
    other = "symbol: Redis has none" + ("; exact without these" if doubts else "")
    return Choice(Rung.SOCKET, why, other, exact=not doubts)


def _ferretdb_rung(server: Server, kernel: KernelFacts, wanted: Rung | None) -> Choice:
    """Requests are seen; their threads serve others in between, so their CPU time is not."""
    missing = "" if kernel.recv_tracepoint else _NO_RECV
    moves = server.thread_pool.source
    if wanted not in (None, Rung.STATISTICAL):
        return _as_wanted(server, wanted, moves, moves, "")
    if missing:
        return Choice(Rung.NONE, missing, exact=False)
    why = f"requests are counted and timed; {moves}, so none owns CPU time"
    if server.encryption.value is not False:
        why += "; those with TLS would be counted as loss, not seen"
    return Choice(Rung.STATISTICAL, why, "symbol: FerretDB has none", exact=False)


def _cassandra_rung(server: Server, kernel: KernelFacts, wanted: Rung | None) -> Choice:
    """A request goes through several threads, none of which shows whom it works for."""
    missing = "" if kernel.recv_tracepoint else _NO_RECV
    if wanted is not None and wanted is not Rung.STATISTICAL:
        return _as_wanted(server, wanted, _OWN_STAGES, _OWN_STAGES, "")
    if missing:
        why = f"CPU time and energy by stage: requests cannot be counted, {missing}"
        return Choice(Rung.NONE, why, _NEEDS_AGENT, exact=False, by_thread=True)
    why = "requests are counted on its sockets; joules by regression on their counts"
    if server.encryption.value is not False:
        why += f"; encrypted sessions are counted, not seen ({server.encryption.source})"
    return Choice(Rung.STATISTICAL, why, _NEEDS_AGENT, exact=False)


def _voltdb_rung(
    server: Server, kernel: KernelFacts, symbol_problem: str, wanted: Rung | None
) -> Choice:
    """Connections are served by other threads than procedures, so sockets tell nothing of them."""
    if not kernel.uprobes:
        symbol_problem = symbol_problem or "the kernel has no uprobes"
    if wanted is not None:
        return _as_wanted(server, wanted, symbol_problem, _OTHER_THREADS, "")
    if symbol_problem:
        why = f"CPU time and energy by thread name: {symbol_problem}"
        return Choice(Rung.NONE, why, exact=False, by_thread=True)
    why = "one site thread executes a procedure's SQL, all of it through one native function"
    return Choice(Rung.SYMBOL, why, f"socket: not possible, {_OTHER_THREADS}")


def _as_wanted(
    server: Server, wanted: Rung, symbol_problem: str, impossible: str, hidden: str
) -> Choice:
    obstacle = {
        Rung.SYMBOL: symbol_problem,
        Rung.SOCKET: impossible,
    }.get(wanted, "there is none for this kind of server")
    if obstacle:
        why = f"{server.label} cannot use the {wanted.name.lower()} rung: {obstacle}"
        if server.running:
            raise QjouleError(f"{why}; leave out --rung, or choose servers that have it with --pid")
        return Choice(Rung.NONE, why, exact=False)  # installed only: stands in nobody's way
    if wanted is Rung.SOCKET and hidden:
        why = f"as asked for; encrypted sessions will be counted, not seen ({hidden})"
        return Choice(wanted, why, exact=False)
    return Choice(wanted, "as asked for")


def _what_moves_queries(server: Server) -> str:
    pool = server.thread_pool
    if pool.value is None:
        return f"a thread pool cannot be ruled out ({pool.source})"
    return f"a thread pool moves queries between threads ({pool.source})" if pool.value else ""


def _what_hides_queries(server: Server) -> str:
    encryption = server.encryption
    if encryption.value is None:
        return f"encryption cannot be ruled out ({encryption.source})"
    return f"sessions may be encrypted ({encryption.source})" if encryption.value else ""


def _socket_is_exact(server: Server) -> str:
    worker = "process" if server.flavour == "postgres" else "thread"
    return f"one {worker} per connection, plain text ({server.encryption.source})"


def _symbol_needs(symbol_problem: str) -> str:
    if symbol_problem:
        return f"symbol: not possible, {symbol_problem}"
    return "symbol: possible, dearer"


def _socket_needs(server: Server, missing: str) -> str:
    needs = []
    if missing:
        needs.append("Linux 6.3")
    for fact, known, unknown in (
        (server.thread_pool, "one thread per connection", "thread pools ruled out"),
        (server.encryption, "encryption turned off", "encryption ruled out"),
    ):
        if fact.value is not False:
            needs.append(known if fact.value else unknown)
    if not needs:
        return "socket: possible if that other server is left out, with --pid"
    return f"socket: would need {' and '.join(needs)}"
