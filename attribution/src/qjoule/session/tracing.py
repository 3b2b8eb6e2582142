# SPDX-License-Identifier: Apache-2.0
"""The one way from a plan to the tracer's stream, for `record`, `top` and `calibrate`; also for a
short test whether a plan sees the servers' requests.

Each step removes a right that later steps must not have:

1. The root part binds the socket for the applications' tags. (Before that it examined processes
   and put agents into JVMs, see `targets`.)
2. The tracer starts, and the root part loads and attaches for it. From then on nothing more can be
   attached, whatever this process asks for.
3. `attached` runs. It is the last code that may start a program.
4. This process confines itself (seccomp), with all of its threads.
5. The applications' tags are read. From here on this process parses bytes from strangers.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from qjoule.children import share_memory
from qjoule.errors import QjouleError
from qjoule.process import drop_capability
from qjoule.root_part.access import SocketAccess, bind_process
from qjoule.root_part.client import root_part
from qjoule.root_part.protocol import Refused
from qjoule.root_part.reader_filter import confine_reader
from qjoule.servers.attach_plan import AttachPlan
from qjoule.servers.decoding import titled
from qjoule.servers.discovery import ProcServerDetector
from qjoule.servers.registry import server_of
from qjoule.session.compiled_code import CodeWatch
from qjoule.session.pin import pin_map
from qjoule.session.stacks import OpenTables, stack_tables
from qjoule.session.targets import Targets
from qjoule.session.tracer import Settings, Tracer, start_tracer, trace_meta
from qjoule.stream.before_tracing import NamedStream
from qjoule.stream.blocks import Stream
from qjoule.stream.prepared_texts import PreparedTextStream
from qjoule.stream.process_titles import ProcessTitleStream
from qjoule.stream.watch import Watch
from qjoule.tags.addresses import Addresses
from qjoule.tags.listening import DEFAULT_PATH
from qjoule.tags.tagging import TagSource
from qjoule.trace.meta import Meta

_CREDENTIALS = struct.Struct("iII")  #: struct ucred: pid, uid, gid


def listen(plan: AttachPlan, *, every_call: bool) -> tuple[TagSource | None, str]:
    """Opens the tag socket for this host's applications; else returns why not, which is not fatal.

    `every_call`: also take calls to servers whose queries probes see.
    """
    reported = [
        p
        for p in plan.traced
        if every_call or p.choice.by_thread or (p.hides_sessions and p.server.running)
    ]
    hidden = frozenset(p.server.id for p in reported if not (every_call or p.choice.by_thread))
    addresses = Addresses.of([p.server for p in reported], network_of=network_of)
    try:
        listening = root_part().tag_socket()
    except Refused as error:
        return None, f"queries will not be tagged: {_why_not_listening(error)}"
    return TagSource(listening=listening, addresses=addresses, hidden=hidden), ""


def network_of(pid: int) -> str | None:
    """Returns the name of a process's network namespace, from /proc/PID/ns/net; None if it has
    ended or may not be inspected.
    """
    connection = root_part().connection
    try:
        if connection is None:
            return str(Path(f"/proc/{pid}/ns/net").readlink())
        with bind_process(connection, pid)[1] as theirs:
            return SocketAccess(theirs).network() or None
    except (OSError, QjouleError):
        return None


def _why_not_listening(error: Refused) -> str:
    if error.errno == errno.EADDRINUSE:
        return holder(Path(os.environ.get("QJOULE_TAGS_SOCKET") or DEFAULT_PATH))
    if error.errno == errno.EPERM:
        return "others than root may write where applications connect: remove /run/qjoule"
    return f"cannot listen for tags: {error}"


def holder(path: Path) -> str:
    """Describes who listens at a tag socket."""
    if path.exists() and not path.is_socket():
        return f"{path} is no socket"
    who = "another recorder takes the tags"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        probe.connect(str(path))
        peer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, _, _ = _CREDENTIALS.unpack(peer)
        who += f" (process {pid})"
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"agent" in words:
            who = f"the agent takes the tags (process {pid}): record with --client-tags, or stop it"
    return who


NO_SAMPLES = "no stacks are sampled: this kernel is older than Linux 5.19"


class Applications(Enum):
    """Which calls that applications report are used."""

    NONE = "none"
    UNSEEN = "unseen"  #: calls to servers whose queries no probe sees
    ALL = "all"


@dataclass(frozen=True)
class Tracing:
    """A running tracer. Its user reads `stream` to the end, or stops the tracer."""

    tracer: Tracer
    stream: Stream
    meta: Meta  #: describes machine and servers; the stream completes it
    tags: TagSource | None
    watch: Watch  #: finds what the stream misses of servers
    no_stacks: tuple[str, ...]  #: lines that say which stacks cannot be sampled or followed
    unheard: str  #: why applications cannot report; empty: they can, or are not used
    pinned: str  #: result of --pin-map; empty: not requested
    code: CodeWatch | None = None  #: names code that JVMs have compiled


@contextmanager
def tracing(
    targets: Targets,
    settings: Settings,
    *,
    applications: Applications = Applications.NONE,
    meanwhile: Callable[[], object] = lambda: None,
    attached: Callable[[Tracer], object] = lambda _tracer: None,
    modules: Callable[[OpenTables], object] = lambda _tables: None,
    confined: bool = True,
) -> Iterator[Tracing]:
    """Traces the targets while the block runs. Afterwards the tracer has ended.

    `Tracer.close` reports its failure, for callers that have read the stream to its end.

    Args:
        meanwhile: called while the tracer attaches; it leaves one thread.
        attached: called once the tracer is attached, before this process is confined.
        modules: called with the files whose functions are on sampled stacks, if stacks are sampled,
            while this process has one thread.
        confined: False if programs are started while the block runs.

    Raises:
        QjouleError: there is no root part, it refuses, or the tracer fails, with its message.
    """
    meta = trace_meta(targets.plan)
    watch = _watch(meta, targets)
    with ExitStack() as stack:
        if targets.reattach_helper is not None:
            stack.callback(targets.reattach_helper.close)
        if targets.credential_helper is not None:
            stack.callback(targets.credential_helper.close)
        tags, unheard = None, ""
        if applications is not Applications.NONE:
            tags, unheard = listen(targets.plan, every_call=applications is Applications.ALL)
        if tags is not None:
            stack.callback(tags.close)
        tables = OpenTables()
        if settings.stacks_hz:
            tables = stack.enter_context(stack_tables(targets.plan))
            settings = replace(settings, stack_tables=tables.descriptors)
            meta = replace(meta, modules=tables.modules)
            modules(tables)
        if settings.stacks_hz and targets.early:
            tables = replace(tables, missing=(NO_SAMPLES,))
        tracer = start_tracer(targets.plan, settings, targets.pids, targets.agents)
        stack.callback(tracer.abandon)
        share_memory()
        meanwhile()
        tracer.wait_attached()
        pinned = pin_map() if settings.pin_map else ""
        attached(tracer)
        drop_capability()
        if confined:
            confine_reader()
        if tags is not None:
            tags.start()
        meta = replace(meta, more_counters=tracer.more_counters)
        stream = _titled(tracer, targets.plan, watch)
        if targets.credential_helper is not None:
            stream = PreparedTextStream(
                NamedStream(stream, targets.credential_helper), targets.credential_helper
            )
        yield Tracing(
            *(tracer, stream, meta, tags, watch, tables.missing, unheard, pinned), tables.code
        )


def _titled(tracer: Tracer, plan: AttachPlan, watch: Watch) -> Stream:
    """Returns the tracer's stream, with roles for processes that write titles."""
    servers = (planned.server for planned in plan.traced)
    roles = dict(titled((server.id, server.kind) for server in servers))
    watch.learnt.append(lambda s: roles.update(titled([(s.id, server_of(s.kind).kind)])))
    return ProcessTitleStream(tracer.stream, roles)


def _watch(meta: Meta, targets: Targets) -> Watch:
    """Watches the servers of this machine, including those that are left out."""
    reasons = {
        planned.server.tgids[0]: planned.choice.why
        for planned in targets.plan.servers
        if planned.server.running and not planned.traced
    }
    unseen = {
        planned.server.label: planned.choice.unseen
        for planned in targets.plan.traced
        if planned.choice.unseen
    }
    return Watch(
        meta.servers,
        ProcServerDetector(),
        chosen=bool(targets.pids),
        reasons=reasons,
        unseen=unseen,
        follower=targets.reattach_helper,
    )
