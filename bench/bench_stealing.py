# SPDX-License-Identifier: Apache-2.0
"""Whether processes of our own user ever take a socket that the root part made, for a long time.

    python bench/bench_stealing.py [--seconds S] [--thieves N]

qjoule starts and ends over and over as a user that root names, as the service does; a user that it
chooses itself has no other process. It records, shows, and runs the agent, which also starts again
for a new server. Meanwhile the thieves of tests/nightly/hostile/thief.c, of the same user, ask each
of that user's new processes for all of its descriptors (pidfd_getfd(2)). Then the agent's loader
starts over and over, and the thieves are of the JVM's user. Prints how often they asked and what
they took. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pwd
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.command import machine, machine_lines, run, shared_directory  # noqa: E402

from qjoule.servers.jvm.process import identity_of, status_of  # noqa: E402
from qjoule_studies.servers.process import free_port  # noqa: E402
from servers.toy_cassandra import ToyCassandra, compile_toy, toy_cassandra  # noqa: E402
from tracing.agents import AgentsByRootPart, agents_by_root_part  # noqa: E402

QJOULE = Path(sys.executable).parent / "qjoule"
THIEF = ROOT / "tests/nightly/hostile/thief.c"
USER = 54103  #: without an account
JVM_USER = "nobody"
COMMANDS = ("record", "top", "record", "top", "agent", "agent starting again")
#: Seconds until the agent has started, and then starts again for a server that it did not know.
AGENT_S, AGAIN_S = 4.0, 30.0


class Runs:
    """Starts commands of qjoule as the user `USER`."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._numbers = directory, itertools.count()
        self._env = {**os.environ, "QJOULE_UID": str(USER), "QJOULE_GID": str(USER)}
        self.roots: set[int] = set()  #: the root parts' processes, one for each run
        self.starts = 0  #: by an agent that runs

    def run(self, command: str) -> None:
        place = self._directory / str(next(self._numbers))
        place.mkdir()
        os.chown(place, USER, USER)
        watched = ["--pid", str(os.getpid())]
        if command == "record":
            arguments = ["record", "-d", "0.3", "-o", str(place / "t"), *watched]
        elif command == "top":
            arguments = ["top", "-b", "-n", "1", "-d", "0.5", *watched]
        else:
            arguments = ["agent", "--config", str(self._configured(place))]
        with (place / "said").open("wb") as log:
            process = subprocess.Popen(
                [QJOULE, *arguments], env=self._env, stdout=subprocess.DEVNULL, stderr=log
            )
            self.roots.add(process.pid)
            if command.startswith("agent"):
                time.sleep(AGENT_S)
                self._again(place / "said", command)
                process.terminate()
            process.wait()

    def _configured(self, place: Path) -> Path:
        store, config = place / "store", place / "agent.toml"
        store.mkdir()
        os.chown(store, USER, USER)
        listen = f'[metrics]\nlisten = "127.0.0.1:{free_port()}"\n[tracing]\ninterval_s = 1.0\n'
        config.write_text(f'{listen}[store]\npath = "{store}"\n')
        return config

    def _again(self, log_path: Path, command: str) -> None:
        if command == "agent":
            return
        memcached = ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(free_port())]
        server = subprocess.Popen(memcached, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + AGAIN_S
            while b"starting again" not in log_path.read_bytes() and time.monotonic() < deadline:
                time.sleep(0.2)
            self.starts += b"starting again" in log_path.read_bytes()
            time.sleep(AGENT_S)
        finally:
            server.kill()
            server.wait()


class Loaders:
    """The agent's loader, started for one JVM."""

    def __init__(self, agents: AgentsByRootPart, toy: ToyCassandra) -> None:
        self._agents, self._toy = agents, toy
        self.started = self.loaded = 0

    def run(self) -> None:
        with self._agents.reached(self._toy.process) as jvm:
            identity = identity_of(jvm.pid, status_of(jvm))
            loader = jvm.loader(identity, client_tags=False, may_signal=True, seconds=30)
        with loader:
            answer, leases, _, _ = socket.recv_fds(loader, 1024, 1)
        for lease in leases:
            os.close(lease)
        self.started += 1
        self.loaded += answer.startswith(b"ok")


def robbed(
    thief: Path, uid: int, seconds: float, count: int, work: Callable[[], object]
) -> tuple[int, set[int]]:
    """Has `work` done over and over beside thieves of this user. Returns how often they asked, and
    the processes of root whose sockets they took."""
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            process = subprocess.Popen(
                ["nice", thief, str(uid), str(round(seconds))],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append(process)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            work()
        answers = [process.communicate() for process in started]
    stolen = {int(word) for output, _ in answers for word in output.split()[1:]}
    return sum(int(counted) for _, counted in answers), stolen


def attack_commands(seconds: float, thieves: int, thief: Path) -> None:
    with shared_directory() as directory:
        runs, commands = Runs(directory), itertools.cycle(COMMANDS)
        attempts, stolen = robbed(thief, USER, seconds, thieves, lambda: runs.run(next(commands)))
    print(
        f"{len(runs.roots)} runs, {runs.starts} started again; asked {attempts:,} times: "
        f"{len(stolen & runs.roots)} sockets of the root part taken"
    )


def attack_loaders(seconds: float, thieves: int, thief: Path) -> None:
    with (
        shared_directory() as directory,
        toy_cassandra(compile_toy(directory) / "all", user=JVM_USER) as toy,
        agents_by_root_part() as agents,
    ):
        loaders, uid = Loaders(agents, toy), pwd.getpwnam(JVM_USER).pw_uid
        attempts, stolen = robbed(thief, uid, seconds, thieves, loaders.run)
        print(
            f"{loaders.started} loaders, {loaders.loaded} agents loaded; asked {attempts:,} times: "
            f"{len(stolen & {agents.root.pid})} sockets of the root part taken"
        )


def bench(seconds: float, thieves: int) -> None:
    for line in machine_lines(machine()):
        print(line)
    with tempfile.TemporaryDirectory(prefix="qjoule-thief-") as directory:
        program = Path(directory) / "thief"
        subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-o", program, THIEF], check=True)
        Path(directory).chmod(0o755)
        attack_commands(seconds, thieves, program)
        attack_loaders(seconds, thieves, program)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="[default: 600]")
    parser.add_argument("--thieves", type=int, default=4, help="[default: 4]")
    options = parser.parse_args()
    return run("bench_stealing", lambda: bench(options.seconds, options.thieves))


if __name__ == "__main__":
    sys.exit(main())
