# SPDX-License-Identifier: Apache-2.0
"""Decides on attach modes, as far as all servers have it in common.

The socket mode sees queries in the traffic of the serving thread. It is exact if one thread serves
a connection from request to reply and the bytes are not encrypted. Otherwise probes on the server's
own functions are used (the symbol mode), which cost more per query.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from qjoule.contract import AttachMode
from qjoule.servers.types import Fact, Server


@dataclass(frozen=True)
class KernelFacts:
    reads: bool  #: the socket mode sees reads of sockets
    sends: bool  #: the socket mode sees writes of sockets, which some servers need
    uprobes: bool  #: for the symbol mode
    early: bool = False  #: lacks features of Linux 5.19: programs for early kernels are loaded


_NO_RECV = "the kernel lacks the tracepoint sock_recv_length (6.3)"
_NO_SEND = "the kernel lacks the tracepoint sock_send_length (6.3)"


@dataclass(frozen=True)
class Choice:
    """A decision. `why` is one line; `other` states what the other attach mode would need."""

    attach_mode: AttachMode  #: NONE: no query boundaries; `why` names what is missing
    why: str
    other: str = ""
    exact: bool = True
    unseen: str = ""  #: sessions that are missed without counting a loss, one line
    by_thread: bool = False  #: traced without query boundaries: CPU time by thread name
    refused: bool = False  #: not traced: it cannot have the user's attach mode
    no_symbol: str | None = None  #: why not the symbol mode; empty: possible; None: unknown

    @property
    def traced(self) -> bool:
        return self.attach_mode is not AttachMode.NONE or self.by_thread


@dataclass(frozen=True)
class Case:
    """Everything that a server's attach mode depends on."""

    server: Server
    kernel: KernelFacts
    symbol_problem: str = ""  #: why the symbol mode is not possible, empty when it is
    wanted: AttachMode | None = None  #: the user's choice
    shared_executable: str = ""  #: why another server of the same file needs probes in it

    @property
    def no_recv(self) -> str:
        """Returns why reads of sockets cannot be seen, empty when they can."""
        return "" if self.kernel.reads else _NO_RECV

    @property
    def no_traffic(self) -> str:
        """Returns why reads and writes of sockets cannot both be seen, empty when they can."""
        return self.no_recv or ("" if self.kernel.sends else _NO_SEND)

    @property
    def no_probes(self) -> str:
        """Returns why the symbol mode is impossible on this kernel, empty when it is possible."""
        if self.kernel.uprobes:
            return self.symbol_problem
        return self.symbol_problem or "the kernel has no uprobes, or not with these rights"


def with_hidden(server: Server, label: str, hidden: Collection[tuple[str, str]]) -> Server:
    """Marks the server's sessions as possibly encrypted if its owner and label are in `hidden`."""
    if (str(server.owner), label) not in hidden:
        return server
    return replace(server, encryption=Fact(True, "TLS or compression hid some of them"))


def attach_mode_by_connection(case: Case, worker: str = "thread", *, unseen: str = "") -> Choice:
    """Decides for a server with one worker per connection, unless it is configured to pool.

    Args:
        unseen: the plain-text sessions that the socket mode cannot read.
    """
    choice = _attach_mode_by_connection(case, worker, unseen)
    if choice.attach_mode is not AttachMode.SOCKET or not unseen:
        return choice
    return replace(choice, exact=False, unseen=unseen, why=f"{choice.why}; not seen: {unseen}")


def _attach_mode_by_connection(case: Case, worker: str, unseen: str) -> Choice:
    server, missing, symbol_problem = case.server, case.no_recv, case.no_probes
    hidden = _what_hides_queries(server)
    moves = _what_moves_queries(server)
    if case.wanted is not None:
        return as_wanted(case, symbol_problem, missing or moves, hidden)
    blocked = missing or moves or hidden or case.shared_executable
    if unseen and not symbol_problem and blocked in ("", case.shared_executable):
        return Choice(AttachMode.SYMBOL, f"the socket mode misses {unseen}")
    if not blocked:
        why = f"one {worker} per connection, plain text ({server.encryption.source})"
        return Choice(AttachMode.SOCKET, why, _symbol_needs(symbol_problem))
    if not symbol_problem:
        return Choice(AttachMode.SYMBOL, blocked, _socket_needs(server, missing))
    if missing or moves:
        return Choice(AttachMode.NONE, f"{missing or moves}; and {symbol_problem}", exact=False)
    # Encrypted sessions are recognised and counted as loss, so the result tells what is missing.
    why = f"plain text is seen; sessions that are encrypted are counted, not seen: {blocked}"
    return Choice(AttachMode.SOCKET, why, _symbol_needs(symbol_problem), exact=False)


def as_wanted(case: Case, symbol_problem: str, socket_problem: str, hidden: str = "") -> Choice:
    """Returns the user's choice, or a refusal with the reason.

    Args:
        symbol_problem: why the symbol mode is impossible, empty when it is possible.
        socket_problem: likewise for the socket mode.
        hidden: why the socket mode would miss some sessions.
    """
    wanted = case.wanted
    assert wanted is not None
    obstacle = {
        AttachMode.SYMBOL: symbol_problem,
        AttachMode.SOCKET: socket_problem,
    }.get(wanted, "there is none for this kind of server")
    if obstacle:
        why = f"cannot use the {wanted.name.lower()} mode: {obstacle}"
        return Choice(AttachMode.NONE, why, exact=False, refused=True)
    if wanted is AttachMode.SOCKET and hidden:
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


def _symbol_needs(symbol_problem: str) -> str:
    if symbol_problem:
        return f"symbol: not possible, {symbol_problem}"
    return "symbol: possible, dearer"


def _socket_needs(server: Server, missing: str) -> str:
    needs = []
    if missing:
        needs.append("Linux 6.3")
    for fact, if_true, if_unknown in (
        (server.thread_pool, "one thread per connection", "thread pools ruled out"),
        (server.encryption, "encryption turned off", "encryption ruled out"),
    ):
        if fact.value is not False:
            needs.append(if_true if fact.value else if_unknown)
    if not needs:
        return "socket: possible if that other server is left out, with --pid"
    return f"socket: would need {' and '.join(needs)}"
