# SPDX-License-Identifier: Apache-2.0
"""Has the mappings of servers read before tracing, for the tracer to unwind their stacks with.

One examiner per server writes into memory that is shared with it alone, and has ended before the
tracer gets that memory. What it wrote is untrusted.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import platform
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from qjoule.children import memory_to_share, run_in_subprocess
from qjoule.errors import QjouleError
from qjoule.root_part.access import SocketAccess, bind_process
from qjoule.root_part.client import root_part
from qjoule.root_part.examiner import Failed, Task, run_all
from qjoule.servers.attach_plan import AttachPlan
from qjoule.servers.registered import libraries_of
from qjoule.servers.stack_tables import (
    JIT_CODE,
    MODULES_MAX,
    SPACE_BYTES,
    StackTables,
    own_vdso,
)
from qjoule.session.compiled_code import CodeWatch, Jvm
from qjoule.shapes.safe_text import sanitise
from qjoule.trace.meta import Module

_CPU_S = 8
_BUILD_ID_MAX = 128


@dataclass(frozen=True)
class OpenTables:
    """Descriptors for the tracer, the modules by number, and lines about missing stacks.

    `descriptors`: each server's tables, and the list of what its JVM has compiled (0: no JVM).
    `pids`: a process of each server; the modules of server n have the numbers of block n.
    """

    descriptors: tuple[tuple[int, int], ...] = ()
    modules: tuple[Module, ...] = ()
    missing: tuple[str, ...] = ()
    code: CodeWatch | None = None  #: watches the JVMs among them; None: there are none
    pids: tuple[int, ...] = ()

    def of_server(self, number: int) -> list[Module]:
        return [module for module in self.modules if (module.id - 1) // MODULES_MAX == number]


@contextmanager
def stack_tables(plan: AttachPlan) -> Iterator[OpenTables]:
    """Makes the tables of the plan's running servers, open while the block runs. The caller must
    have one thread.

    Raises:
        QjouleError: stacks cannot be unwound on this machine.
    """
    if platform.machine() != "x86_64":
        raise QjouleError(f"--stacks follows stacks on x86-64 only, not {platform.machine()}")
    running = [planned.server for planned in plan.traced if planned.server.running]
    servers = [(server.label, server.tgids[0]) for server in running]
    libraries = [libraries_of(server.flavour) for server in running]
    with ExitStack() as opened:
        memory: list[int] = []
        for label, _ in servers:
            memory.append(memory_to_share(f"stacks of {label}", SPACE_BYTES))
            opened.callback(os.close, memory[-1])
        pids = [pid for _, pid in servers]
        answers = run_in_subprocess(lambda: _examine(pids, memory, libraries))
        sealed: list[int] = []
        modules: list[Module] = []
        missing: list[str] = []
        jvms: dict[int, Jvm] = {}
        for number, (label, pid) in enumerate(servers):
            try:
                of_server = _modules(answers[number], number * MODULES_MAX + 1)
                _seal(memory[number])
            except QjouleError as error:
                missing.append(f"--stacks: {label} has none: {error}")
                continue
            sealed.append(memory[number])
            modules += of_server
            jit = [module.id for module in of_server if module.path == JIT_CODE]
            if jit:
                jvms[memory[number]] = Jvm(label, jit[0], pid)
        code: CodeWatch | None = None
        if jvms:
            try:
                code = CodeWatch(list(jvms.values()))
                opened.callback(code.close)
                missing += code.missing
            except QjouleError as error:
                missing.append(f"--stacks: compiled Java code is not followed: {error}")
        compiled = dict(zip(jvms, code.descriptors, strict=True)) if code else {}
        pairs = tuple((tables, compiled.get(tables, 0)) for tables in sealed)
        yield OpenTables(pairs, tuple(modules), tuple(missing), code, tuple(pids))


def _seal(memory: int) -> None:
    """Seals the memory against writes, before the tracer maps it. Raises `QjouleError` while an
    examiner can still write to it.
    """
    try:
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
    except OSError:
        raise QjouleError("its examiner has not ended") from None


def _examine(
    pids: Sequence[int], memory: Sequence[int], libraries: Sequence[Sequence[str]]
) -> list[bytes | str]:
    """Returns each examiner's answer, or why there is none."""
    answers: list[bytes | str] = ["it was not examined" for _ in pids]
    vdso = own_vdso()
    rooms = [mmap.mmap(descriptor, SPACE_BYTES) for descriptor in memory]

    def task(number: int) -> Task:
        with bind_process(root_part().need("stacks"), pids[number])[1] as connection:
            descriptor = os.dup(connection.fileno())
        tables = StackTables(rooms[number], number * MODULES_MAX + 1, vdso)
        return Task(lambda fd: _written(fd, tables, libraries[number]), descriptor, _CPU_S)

    def done(number: int, answer: bytes | Failed) -> None:
        answers[number] = str(answer) if isinstance(answer, Failed) else answer

    run_all([partial(task, number) for number in range(len(pids))], done)
    return answers


def _written(descriptor: int, tables: StackTables, libraries: Sequence[str]) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, descriptor) as connection:
        try:
            modules = tables.write(SocketAccess(connection), libraries)
        except QjouleError as error:
            return json.dumps({"problem": str(error)}).encode()
    return json.dumps({"modules": [[module.path, module.build_id] for module in modules]}).encode()


def _modules(answer: bytes | str, first: int) -> list[Module]:
    """Parses and checks an examiner's answer about its modules. Raises `QjouleError`."""
    if isinstance(answer, str):
        raise QjouleError(answer)
    try:
        parsed = json.loads(answer)
        if "problem" in parsed:
            raise QjouleError(sanitise(str(parsed["problem"]))[:200])
        pairs = [(str(path), str(build_id)) for path, build_id in parsed["modules"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise QjouleError("it says what makes no sense") from None
    return [
        Module(first + at, sanitise(path), build_id if _is_hexadecimal(build_id) else "")
        for at, (path, build_id) in enumerate(pairs[:MODULES_MAX])
    ]


def _is_hexadecimal(text: str) -> bool:
    return len(text) <= _BUILD_ID_MAX and not text.strip("0123456789abcdef")
