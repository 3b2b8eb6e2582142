# SPDX-License-Identifier: Apache-2.0
"""Processes that send the operations of the workload `load`, each on some of its connections.

One Python process has one core at most, so a fast server would idle while its client is busy. Each
process gets its share of connections and arrivals, says that it is connected, and begins when the
others do, by the clock that all processes share (CLOCK_MONOTONIC).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any

import numpy as np
import numpy.typing as npt

from qjoule.api import QjouleError
from qjoule_studies.workload import Target
from qjoule_studies.workloads.closed_loop import closed_loop
from qjoule_studies.workloads.load_clients import TIMEOUT_S, Client, open_client
from qjoule_studies.workloads.open_loop import Sent, open_loop

COMMANDS = ("read", "update", "range")
_PROGRAM = f"from {__name__} import main; main()"
_CONNECT_S = 60.0
_AHEAD_NS = 50_000_000  # from the order to begin until the beginning
_WARM_UP = 0.2  # of the time in which the peak is measured, before that time
DRAIN_S = 5.0  # after the last arrival, in which what waits is still sent


@dataclass(frozen=True)
class Share:
    """What one process does.

    Attributes:
        keys, commands: of each operation; commands are places in `COMMANDS`.
        arrivals_ns: when operations arrive; None: as fast as they are answered, in a closed loop,
            again and again.
        seconds: how long the load lasts.
        capacity: how many operations may wait.
    """

    target: Target
    rows: int
    connections: int
    keys: npt.NDArray[np.int64]
    commands: npt.NDArray[np.int8]
    arrivals_ns: npt.NDArray[np.int64] | None
    seconds: float
    capacity: int = 0


@dataclass(frozen=True)
class Peak:
    """Results of one process of a closed loop."""

    per_s: float
    errors: int
    client_cpu: float  #: cores that it used


def in_processes(shares: list[Share]) -> list[Sent | Peak]:
    """Runs each share in a process of its own; their results in the same order.

    Raises:
        QjouleError: a process cannot connect, or the server has gone or does not answer.
    """
    with _started(shares) as pipes:
        for pipe in pipes:
            _receive(pipe, _CONNECT_S)
        begin_ns = time.monotonic_ns() + _AHEAD_NS
        for pipe in pipes:
            _send(pipe, begin_ns)
        longest_s = max(share.seconds for share in shares) * (1 + _WARM_UP) + DRAIN_S
        deadline_s = time.monotonic() + longest_s + 2 * TIMEOUT_S
        return [_receive(pipe, deadline_s - time.monotonic()) for pipe in pipes]


@contextmanager
def _started(shares: list[Share]) -> Iterator[list[Connection]]:
    pipes: list[Connection] = []
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in shares:
            ours, theirs = Pipe()
            pipes.append(ours)
            with theirs:
                arguments = [sys.executable, "-c", _PROGRAM, str(theirs.fileno())]
                processes.append(
                    subprocess.Popen(
                        arguments, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
                    )
                )
        for pipe, share in zip(pipes, shares, strict=True):
            _send(pipe, share)
        yield pipes
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _send(pipe: Connection, value: object) -> None:
    # A process that died has sent the reason if it could; it is received next.
    with suppress(OSError):
        pipe.send(value)


def _receive(pipe: Connection, timeout_s: float) -> Any:
    try:
        if not pipe.poll(max(0.0, timeout_s)):
            raise QjouleError("the server does not answer: see its log")
        kind, value = pipe.recv()
    except (EOFError, OSError) as error:
        raise QjouleError("a process that sends the load has died: run it again") from error
    if kind == "failed":
        raise QjouleError(value)
    return value


def main() -> None:
    """The life of a process that sends load; its argument is the descriptor of its pipe."""
    clients: list[Client] = []
    # Ctrl-C, and the parent's end, end this process silently.
    with suppress(KeyboardInterrupt, EOFError, OSError), Connection(int(sys.argv[1])) as pipe:
        share: Share = pipe.recv()
        try:
            clients += [open_client(share.target, share.rows) for _ in range(share.connections)]
            pipe.send(("connected", None))
            begin_ns = pipe.recv()
            threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
            work = _peak if share.arrivals_ns is None else _load
            pipe.send(("done", work(share, clients, begin_ns)))
        except QjouleError as error:
            pipe.send(("failed", str(error)))
        finally:
            for client in clients:
                client.close()


def _end_with_parent(pipe: Connection) -> None:
    """Nothing more is sent to this process, so a readable pipe means that its parent has ended."""
    with suppress(OSError):
        pipe.poll(None)
    os._exit(1)


def _load(share: Share, clients: list[Client], begin_ns: int) -> Sent:
    assert share.arrivals_ns is not None
    last_ns = round((share.seconds + DRAIN_S) * 1e9)
    sends = [_sender(share, client) for client in clients]
    sent = open_loop(share.arrivals_ns, sends, share.capacity, begin_ns, last_ns)
    if sent.gone:
        raise QjouleError(sent.gone)
    return sent


def _peak(share: Share, clients: list[Client], begin_ns: int) -> Peak:
    def operation(client: Client) -> Callable[[int], str]:
        send = _sender(share, client)

        def run(number: int) -> str:
            send(number % len(share.keys))
            return "any"

        return run

    runs = [operation(client) for client in clients]
    time.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9))
    warm = closed_loop(runs, share.seconds * _WARM_UP, 0)
    cpu_s = time.process_time()
    loop = closed_loop(runs, share.seconds, 0)
    cpu_s = time.process_time() - cpu_s
    error = warm.first_error or loop.first_error
    if error is not None:
        raise QjouleError(f"the peak cannot be measured: {type(error).__name__}: {error}"[:200])
    return Peak(loop.operations / loop.wall_s, loop.errors, cpu_s / loop.wall_s)


def _sender(share: Share, client: Client) -> Callable[[int], None]:
    calls = [getattr(client, command) for command in COMMANDS]
    keys, commands = share.keys.tolist(), share.commands.tolist()

    def send(number: int) -> None:
        calls[commands[number]](keys[number])

    return send
