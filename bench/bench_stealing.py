# SPDX-License-Identifier: Apache-2.0
"""Whether processes of our own user ever take a socket to the root part, for a long time.

    python bench/bench_stealing.py [--seconds S] [--thieves N] [--users NAME...]

qjoule starts and ends over and over as each user that it can run as: nobody's or its own if root
calls it, the caller's with sudo, and the service's. It records, shows, and runs the agent, which
also starts again for a new server. Meanwhile the thieves of tests/nightly/hostile/thief.c, of the
user that the command is found to run as, ask each of that user's new processes for all of its
descriptors (pidfd_getfd(2)). Prints how often they asked and what they took. Nothing passes or
fails here.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.command import machine, machine_lines, run  # noqa: E402

from qjoule.studies.servers.process import free_port  # noqa: E402

QJOULE = Path(sys.executable).parent / "qjoule"
THIEF = ROOT / "tests/nightly/hostile/thief.c"
#: By name: who called sudo, or who the unit says that it runs as.
USERS = {"root": 0, "sudo": 61231, "service": 61232}
COMMANDS = ("record", "top", "record", "top", "agent", "agent starting again")
#: Seconds until the agent has started, and then starts again for a server that it did not know.
AGENT_S, AGAIN_S = 4.0, 30.0


class Runs:
    """qjoule's runs as one user."""

    def __init__(self, caller: int, directory: Path) -> None:
        self._directory, self._numbers = directory, itertools.count()
        calling = {"SUDO_UID": str(caller), "SUDO_GID": str(caller)} if caller else {}
        self._env = {name: word for name, word in os.environ.items() if "SUDO_" not in name}
        self._env |= calling
        self.users: list[int] = []  #: of each run
        self.roots: set[int] = set()  #: the root parts' processes
        self.starts = 0  #: by an agent that runs

    def run(self, command: str) -> None:
        place = self._directory / str(next(self._numbers))
        place.mkdir()
        watched = ["--pid", str(os.getpid())]
        if command == "record":
            words = ["record", "-d", "0.3", "-o", str(place / "t"), *watched]
        elif command == "top":
            words = ["top", "-b", "-n", "1", "-d", "0.5", *watched]
        else:
            words = ["agent", "--config", str(self._configured(place))]
        with (place / "said").open("wb") as said:
            process = subprocess.Popen(
                [QJOULE, *words], env=self._env, stdout=subprocess.DEVNULL, stderr=said
            )
            self.roots.add(process.pid)
            self.users.append(_user_of(process))
            if command.startswith("agent"):
                time.sleep(AGENT_S)
                self._again(place / "said", command)
                process.terminate()
            process.wait()

    def _configured(self, place: Path) -> Path:
        store, config = place / "store", place / "agent.toml"
        store.mkdir()
        os.chown(store, self.users[0], -1)
        listen = f'[metrics]\nlisten = "127.0.0.1:{free_port()}"\n[tracing]\ninterval_s = 1.0\n'
        config.write_text(f'{listen}[store]\npath = "{store}"\n')
        return config

    def _again(self, said: Path, command: str) -> None:
        if command == "agent":
            return
        words = ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(free_port())]
        server = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + AGAIN_S
            while b"starting again" not in said.read_bytes() and time.monotonic() < deadline:
                time.sleep(0.2)
            self.starts += b"starting again" in said.read_bytes()
            time.sleep(AGENT_S)
        finally:
            server.kill()
            server.wait()


def _user_of(root_part: subprocess.Popen[bytes]) -> int:
    """The user of the command that a root part has started; 0: it ended before."""
    while root_part.poll() is None:
        with suppress(psutil.Error):
            for child in psutil.Process(root_part.pid).children():
                if uid := child.uids().real:
                    return int(uid)
        time.sleep(0.002)
    return 0


def attacked(name: str, seconds: float, thieves: int, thief: Path) -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qjoule-bench-")))
        directory.chmod(0o755)
        runs = Runs(USERS[name], directory)
        runs.run("record")
        uid = runs.users[0]
        started = []
        for _ in range(thieves):
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
        for command in itertools.cycle(COMMANDS):
            if time.monotonic() > ends:
                break
            runs.run(command)
        answers = [process.communicate() for process in started]
    taken = {int(word) for said, _ in answers for word in said.split()[1:]} & runs.roots
    asked = sum(int(counted) for _, counted in answers)
    same = sum(one == uid for one in runs.users)
    print(
        f"{name:8} uid {uid}: {len(runs.users)} runs ({same} as this user), {runs.starts} started "
        f"again; asked {asked:,} times: {len(taken)} sockets of the root part taken",
        flush=True,
    )


def bench(users: list[str], seconds: float, thieves: int) -> None:
    for line in machine_lines(machine()):
        print(line)
    with tempfile.TemporaryDirectory(prefix="qjoule-thief-") as directory:
        program = Path(directory) / "thief"
        subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-o", program, THIEF], check=True)
        for name in users:
            attacked(name, seconds, thieves, program)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="[default: 600]")
    parser.add_argument("--thieves", type=int, default=4, help="of each user [default: 4]")
    parser.add_argument("--users", nargs="+", choices=USERS, default=list(USERS))
    chosen = parser.parse_args()
    return run("bench_stealing", lambda: bench(chosen.users, chosen.seconds, chosen.thieves))


if __name__ == "__main__":
    sys.exit(main())
