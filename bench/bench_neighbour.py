# SPDX-License-Identifier: Apache-2.0
"""The agent beside a local user who starts and ends servers all the time.

    python bench/bench_neighbour.py [--blocks N] [--seconds S]

A MariaDB answers queries at a steady rate, and the agent watches the whole machine. In every second
block a user without an account starts and ends MariaDB, Redis and memcached, each for one to thirty
seconds, some of them copies with a file of their own. Prints the CPU time of the
agent's processes with and without him, how often the agent started again, and whether it counted
the MariaDB's queries as the server itself did. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.command import machine, machine_lines, run, shared_directory  # noqa: E402

from metrics_pages import samples  # noqa: E402
from qjoule_studies.servers.mysql import mariadb_server  # noqa: E402
from qjoule_studies.servers.prerequisites import Account, Unavailable  # noqa: E402
from qjoule_studies.servers.process import DatabaseServer, free_port  # noqa: E402

QJOULE = Path(sys.executable).parent / "qjoule"
AGENT, NEIGHBOUR = 54101, 54102  #: users without an account
QUERIES_PER_S = 100
STATEMENT, SHAPE = "select {n} + 4711 as beside", "select ? + ? as beside"
LIVES_S = (1, 3, 8, 30)
SETTLED_S = 25.0  #: two intervals of the agent and more


class Agent:
    """`qjoule agent` by its defaults, with a store and an address of its own."""

    def __init__(self, directory: Path) -> None:
        store, config, self._port = directory / "store", directory / "agent.toml", free_port()
        store.mkdir()
        os.chown(store, AGENT, AGENT)
        listen = f'[metrics]\nlisten = "127.0.0.1:{self._port}"\n'
        config.write_text(f'{listen}[store]\npath = "{store}"\n')
        config.chmod(0o644)
        self._log = directory / "said"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [QJOULE, "agent", "--config", config],
                env={**os.environ, "QJOULE_UID": str(AGENT), "QJOULE_GID": str(AGENT)},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    @property
    def messages(self) -> list[str]:
        return self._log.read_text().splitlines()

    def cpu_s(self) -> float:
        """CPU time (s) of its processes and of their ended children."""
        used = 0.0
        own = psutil.Process(self.process.pid)
        for process in (own, *own.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                used += times.user + times.system + times.children_user + times.children_system
        return used

    def calls(self) -> float:
        """The agent's count of the statement, once no interval adds to it."""
        before, now = -1.0, 0.0
        while before != now:
            before = now
            time.sleep(SETTLED_S)
            now = self._calls()
        return now

    def _calls(self) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as page:
            values = samples(page.read())
        infos = (dict(labels) for name, labels in values if name == "qjoule_query_info")
        fingerprints = {
            info["fingerprint"] for info in infos if info.get("text", "").startswith(SHAPE)
        }
        return sum(
            number
            for (name, labels), number in values.items()
            if name == "qjoule_query_calls_total"
            and dict(labels).get("fingerprint") in fingerprints
        )


@contextmanager
def repeated(*actions: Callable[[], None]) -> Iterator[None]:
    """Threads that repeat these actions until the block ends."""
    stop = threading.Event()

    def repeat(action: Callable[[], None]) -> None:
        while not stop.is_set():
            action()

    threads = [threading.Thread(target=repeat, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


class Load:
    """The statement at a steady rate, on one connection."""

    def __init__(self, server: DatabaseServer) -> None:
        self._connection: Any = server.connect()
        self.done = 0
        self._due_s = time.monotonic()

    def query(self) -> None:
        self._due_s += 1 / QUERIES_PER_S
        time.sleep(max(0.0, self._due_s - time.monotonic()))
        with self._connection.cursor() as cursor:
            cursor.execute(STATEMENT.format(n=self.done))
        self.done += 1

    def counted(self) -> int:
        """The server's own count of the statement."""
        with self._connection.cursor() as cursor:
            cursor.execute("show global status like 'Com_select'")
            return int(cursor.fetchone()[1])


class Neighbour:
    """Starts servers and ends them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._account = Account(NEIGHBOUR, NEIGHBOUR)
        self.started = 0

    def small(self) -> None:
        """A Redis or memcached; every second one is a copy, with an identity of its own."""
        name, *options = random.choice((("redis-server", "--save", ""), ("memcached",)))
        installed = shutil.which(name)
        if installed is None:
            raise Unavailable(f"{name} is not installed")
        with tempfile.TemporaryDirectory(dir=self._directory) as place:
            Path(place).chmod(0o755)
            program = Path(installed)
            if self.started % 2:
                program = Path(shutil.copy(installed, Path(place) / name))
            port = ["-p" if name == "memcached" else "--port", str(free_port())]
            process = subprocess.Popen(
                [program, *port, *options],
                user=NEIGHBOUR,
                group=NEIGHBOUR,
                extra_groups=[],
                cwd="/",
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self._live()
            process.kill()
            process.wait()

    def large(self) -> None:
        """The same executable as the traced server's."""
        with mariadb_server(account=self._account):
            self._live()

    def _live(self) -> None:
        self.started += 1
        time.sleep(random.choice(LIVES_S))


def bench(blocks: int, seconds: float) -> None:
    for line in machine_lines(machine()):
        print(line)
    core: dict[bool, list[float]] = {False: [], True: []}
    with ExitStack() as stack:
        directory = stack.enter_context(shared_directory())
        load = Load(stack.enter_context(mariadb_server()))
        neighbour = Neighbour(directory)
        agent = Agent(directory)
        stack.callback(agent.process.wait)
        stack.callback(agent.process.terminate)
        with repeated(load.query):
            time.sleep(SETTLED_S)  # until it is attached, and has seen the statement
        counted, exported, done = load.counted(), agent.calls(), load.done
        for number in range(2 * blocks):
            beside = number % 2 == 1
            load._due_s = time.monotonic()
            actions = (neighbour.small, neighbour.small, neighbour.large) if beside else ()
            with repeated(load.query, *actions):
                cpu_s, began_s = agent.cpu_s(), time.monotonic()
                time.sleep(seconds)
                core[beside].append((agent.cpu_s() - cpu_s) / (time.monotonic() - began_s))
            print(f"{'beside' if beside else 'alone':7} {core[beside][-1]:.3%}", flush=True)
        done = load.done - done
        exported, counted = agent.calls() - exported, load.counted() - counted
        messages = agent.messages
    starts = [line for line in messages if line.endswith("starting again")]
    alone, beside_him = (statistics.median(core[which]) for which in (False, True))
    more = [with_him - without for without, with_him in zip(*core.values(), strict=True)]
    print(f"{blocks} blocks of {seconds:g} s each, {neighbour.started} servers started and ended")
    print(f"agent, of a core      {alone:.2%} alone, {beside_him:.2%} beside him")
    print(
        f"  more, by pairs      {statistics.median(more):+.2%} [{min(more):+.2%}, {max(more):+.2%}]"
    )
    print(f"starts of the agent   {len(starts)}", *starts, sep="\n  ")
    print(
        f"queries               {done:,} sent, {counted:,} by the server, "
        f"{exported:,.0f} by the agent"
    )
    print("the agent said:", *messages[-20:], sep="\n  ")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blocks", type=int, default=5, help="of each kind [default: 5]")
    parser.add_argument("--seconds", type=float, default=120.0, help="[default: 120]")
    options = parser.parse_args()
    return run("bench_neighbour", lambda: bench(options.blocks, options.seconds))


if __name__ == "__main__":
    sys.exit(main())
