# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of the agent's processes beside a MariaDB: 2,000 queries/s, 100 statements.

    python bench/bench_agent_processes.py [--rounds N] [--beside QJOULE]

In each round the agent starts with a store and otherwise by its defaults. Once its first minute is
written, it is measured for a minute: CPU time of all its threads (/proc/PID/schedstat) and, at the
end, its memory: resident (RSS), its part of what processes share (PSS), and all pages that its
processes have mapped, each once: their PSS where nobody else uses these libraries. The store's
writer runs for a second in five minutes: what it takes counts as a part of these, and its memory,
which is there only meanwhile, is printed apart. `--beside`: the `qjoule` of another tree, in turn
with this one's. Prints figures beside targets, then medians. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from bench.command import machine, machine_lines, run, shared_directory
from bench.overhead.cpu import cpu_ns, family

from qjoule.agent.rollups import TOGETHER
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.process import free_port

QJOULE = Path(sys.executable).parent / "qjoule"
AGENT = 54101  #: a user without an account
WARM_UP_S, MEASURED_S, PER_SECOND = 80, 60, 2000
WRITER_EACH_S = 60 * TOGETHER
TARGET_CORE, TARGET_MB = 0.01, 80
#: sysbench's: ten letters for each of two columns' names.
LOAD = """
function thread_init() con = sysbench.sql.driver():connect() end
function letter() return string.char(96 + sysbench.rand.uniform(1, 10)) end
function event()
  local value = sysbench.rand.uniform(1, 1000)
  con:query("SELECT " .. value .. " AS x" .. letter() .. ", 1 AS x" .. letter())
end
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--beside", type=Path, metavar="QJOULE")
    options = parser.parse_args()
    print("\n".join(machine_lines(machine())), flush=True)
    with ExitStack() as stack:
        directory = stack.enter_context(shared_directory())
        server = stack.enter_context(mariadb_server())
        script = directory / "load.lua"
        script.write_text(LOAD)
        arguments = f"--db-driver=mysql --mysql-socket={server.socket} --mysql-user=root "
        arguments += f"--mysql-db=mysql --threads=4 --time=0 --rate={PER_SECOND} run"
        load = subprocess.Popen(["sysbench", script, *arguments.split()], stdout=subprocess.DEVNULL)
        stack.callback(load.wait)
        stack.callback(load.kill)
        programs = [program for program in (options.beside, QJOULE) if program]
        results: dict[Path, list[tuple[float, float]]] = {program: [] for program in programs}
        for number in range(options.rounds):
            for program in programs if number % 2 else reversed(programs):
                results[program].append(measure(program, server.pid, directory))
        for program, figures in results.items():
            cores, sizes = zip(*figures, strict=True)
            print(f"{program}: median of {len(figures)}: {median(cores):.2%} of a core ", end="")
            print(f"[{min(cores):.2%}, {max(cores):.2%}], {median(sizes):.1f} MB PSS ", end="")
            print(f"[{min(sizes):.1f}, {max(sizes):.1f}]")


def measure(program: Path, pid: int, directory: Path) -> tuple[float, float]:
    """Runs an agent; prints a line for each of its processes, and returns their sums: of a core,
    and in MB.
    """
    store, config, port = directory / "store", directory / "agent.toml", free_port()
    store.mkdir()
    os.chown(store, AGENT, AGENT)
    config.write_text(f'metrics.listen = "127.0.0.1:{port}"\nstore.path = "{store}"\n')
    settings = {"QJOULE_UID": str(AGENT), "QJOULE_GID": str(AGENT)}
    settings["QJOULE_TAGS_SOCKET"] = str(directory / "tags")  # applications elsewhere are not ours
    command = [str(program), "agent", "--config", str(config), "--pid", str(pid)]
    agent = subprocess.Popen(command, env=os.environ | settings, stderr=subprocess.DEVNULL)
    try:
        writer_mb = warm_up(agent.pid)
        pids = family(agent.pid)
        begin_s, before = time.monotonic(), [cpu_ns([pid]) for pid in pids]
        time.sleep(MEASURED_S)
        passed_ns = (time.monotonic() - begin_s) * 1e9
        cores = [(cpu_ns([pid]) - ns) / passed_ns for pid, ns in zip(pids, before, strict=True)]
        sizes = [sizes_mb(pid) for pid in pids]
        once_mb = len(set().union(*map(pages, pids))) * resource.getpagesize() / 1e6
        for watched_pid, core, size in zip(pids, cores, sizes, strict=True):
            name = Path(f"/proc/{watched_pid}/comm").read_text().strip()
            print(f"  {name:15} {core:6.2%}  {size['Pss']:5.1f} MB PSS  {size['Rss']:5.1f} MB RSS")
        share_mb = sum(size["Pss"] for size in sizes)
        writer_s = sum(map(ended_children_s, (pid for pid in pids if is_shell(pid))))
        if writer_s:
            cores.append(writer_s / WRITER_EACH_S)
            print(f"  {'writer':15} {cores[-1]:6.2%}  {writer_s:.2f} s each time", end="")
            print(f", {writer_mb:.0f} MB PSS meanwhile")
        print(f"{program}: {sum(cores):.2%} of a core (target ≤ {TARGET_CORE:.0%}), ", end="")
        print(f"{share_mb:.1f} MB PSS, {once_mb:.1f} MB each page once (≤ {TARGET_MB} MB)")
        return sum(cores), share_mb
    finally:
        agent.terminate()
        agent.wait()
        shutil.rmtree(store)


def warm_up(agent: int) -> float:
    """Waits until the first minute is written; returns the most MB that a shell's child had."""
    most_mb, end_s = 0.0, time.monotonic() + WARM_UP_S
    while time.monotonic() < end_s:
        time.sleep(0.05)
        for shell in filter(is_shell, family(agent)):
            for child in family(shell)[1:]:
                with suppress(OSError, KeyError):
                    most_mb = max(most_mb, sizes_mb(child)["Pss"])
    return most_mb


def is_shell(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() == "sh"
    return False


def ended_children_s(pid: int) -> float:
    """CPU time of a process's children that have ended (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


def sizes_mb(pid: int) -> dict[str, float]:
    """A process's sizes in MB (10^6 bytes), by the names of /proc/PID/smaps_rollup."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) * 1024 / 1e6 for line in lines}


def pages(pid: int) -> set[int]:
    """The page frames that a process has mapped (Documentation/admin-guide/mm/pagemap.rst)."""
    frames, page = set[int](), resource.getpagesize()
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            begin, end = (int(word, 16) // page for word in line.split()[0].split("-"))
            pagemap.seek(begin * 8)
            entries = np.frombuffer(pagemap.read((end - begin) * 8), np.uint64)
            present = entries[entries >> np.uint64(63) == 1]
            frames.update((present & np.uint64((1 << 55) - 1)).tolist())
    return frames


if __name__ == "__main__":
    sys.exit(run(Path(__file__).stem, main))
