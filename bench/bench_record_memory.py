# SPDX-License-Identifier: Apache-2.0
"""How much memory the processes of a recording hold, while a server idles and under full load.

    sudo packaging/reachable .venv/bin/python bench/bench_record_memory.py [--seconds N] [OPTION...]

Records a MariaDB of its own, with sysbench's point selects from 8 threads; further options are
`record`'s, as in `--keep 30s`. Prints for each process its resident memory (RSS), its share where
pages are shared with others (PSS), and what is its own, each the largest seen. For all processes
together it counts the pages that any of them has, each once (/proc/PID/pagemap). That is what a
machine pays on which nothing else uses the same libraries; PSS divides those among all programs
that do, such as this one. Then the same of the reader alone, which
gets texts of a made stream as fast as it takes them, each of another shape: nothing else of a
stream makes it grow. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

import fake_tracer as ft
from qjoule.contract import Block
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import Recorder

TARGET_MB = 64
MB = 1 << 20
LOOK_S = 0.2
THREADS, ROWS = 8, 10_000
TEXTS, STEP = 60_000, 500  #: more than `stream.statements.MAX_SHAPES`
ALL = "all processes, each page once"
Sizes = dict[str, tuple[float, float, float]]
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT, _FRAME = np.uint64(1 << 63), np.uint64((1 << 55) - 1)  #: of an entry of pagemap


def _name(process: psutil.Process, recorder: Recorder) -> str:
    if process.pid == recorder.process.pid:
        return "root part"
    if process.pid == recorder.command_pid:
        return "reader"
    return "tracer" if process.name().startswith("qjoule-tracer") else "keeper"


def _largest(recorder: Recorder, seconds: float, has_ended: Callable[[], bool]) -> Sizes:
    """Largest RSS, PSS and private memory (MB), by process and of all together."""
    largest: Sizes = {}
    end = time.monotonic() + seconds
    top = psutil.Process(recorder.process.pid)
    while time.monotonic() < end and not has_ended():
        pages = [np.empty(0, np.uint64)]
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.Error, OSError):
                memory = process.memory_full_info()
                now = (memory.rss / MB, memory.pss / MB, memory.uss / MB)
                _keep_largest(largest, _name(process, recorder), now)
                pages.append(_frames(process.pid))
        together = len(np.unique(np.concatenate(pages))) * _PAGE / MB
        _keep_largest(largest, ALL, (together, together, together))
        time.sleep(LOOK_S)
    return largest


def _frames(pid: int) -> npt.NDArray[np.uint64]:
    """The numbers of the physical pages that a process has mapped (proc_pid_pagemap(5))."""
    frames = [np.empty(0, np.uint64)]
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/pagemap").open("rb") as file:
        for line in maps:
            begin, end = (int(word, 16) // _PAGE for word in line.split()[0].split("-"))
            if begin < (1 << 63) // _PAGE:  # not the kernel's own
                file.seek(begin * 8)
                entries = np.frombuffer(file.read((end - begin) * 8), np.uint64)
                frames.append(entries[(entries & _PRESENT) > 0] & _FRAME)
    return np.concatenate(frames)


def _keep_largest(largest: Sizes, name: str, now: tuple[float, float, float]) -> None:
    before = largest.get(name, now)
    largest[name] = (max(before[0], now[0]), max(before[1], now[1]), max(before[2], now[2]))


def _show(title: str, largest: Sizes) -> None:
    print(f"\n{title:30}{'RSS':>8}{'PSS':>8}{'own':>8}   MB")
    for name, sizes in sorted(largest.items()):
        if name != ALL:
            print(f"  {name:28}" + "".join(f"{size:8.1f}" for size in sizes))
    together = largest[ALL][0]
    met = "met" if together <= TARGET_MB else "missed"
    print(f"  {ALL:36}{together:8.1f}   (≤ {TARGET_MB}: {met})")


def _sysbench(server: DatabaseServer, *arguments: str) -> list[str]:
    options = [f"--mysql-socket={server.socket}", "--mysql-user=root", "--mysql-db=sbtest"]
    size = ["--tables=1", f"--table-size={ROWS}", f"--threads={THREADS}"]
    return ["sysbench", "oltp_point_select", "--db-driver=mysql", *options, *size, *arguments]


def _beside_a_server(seconds: float, options: list[str]) -> None:
    with mariadb_server() as server, tempfile.TemporaryDirectory() as folder:
        with closing(server.connect()) as connection:
            connection.cursor().execute("CREATE DATABASE sbtest")
        subprocess.run(_sysbench(server, "prepare"), check=True, stdout=subprocess.DEVNULL)
        recorder = Recorder(
            Path(folder) / "t", "--pid", str(server.pid), "--energy", "none", *options
        )
        try:
            recorder.attached()
            _show("the server idles", _largest(recorder, 3, lambda: False))
            command = _sysbench(server, f"--time={seconds:g}", "run")
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
                largest = _largest(recorder, seconds, lambda: load.poll() is not None)
                output = load.communicate()[0]
            _show("full load", largest)
            rate = next(line for line in output.splitlines() if "queries:" in line)
            print("  " + " ".join(rate.split()))
            recorder.stop()
        finally:
            recorder.end()


_READER = """
import sys
from pathlib import Path
from qjoule.servers.decoding import fingerprint
from qjoule.spool.capture import Capture, CaptureContext
from qjoule.stream.blocks import Stream
from qjoule.trace.meta import Meta
context = CaptureContext(fingerprint, Meta(host="here"))
Capture(Path(sys.argv[1]), context).run(Stream(sys.stdin.buffer))
"""


def _texts(begin: int) -> bytes:
    columns = " AND ".join(f"column_{number} = 1" for number in range(10))
    statements = (
        ft.text(number + 1, f"SELECT * FROM table_{number} AS t{number}x WHERE {columns}".encode())
        for number in range(begin, begin + STEP)
    )
    # As behind every frame of a spool: what came before is then on the disk.
    spooled = ft.block(Block.SPOOLED, {"frames": begin // STEP + 1})
    return b"".join(statements) + spooled + ft.flush(ft.BEGIN_NS + begin * ft.MS)


def _reader_alone() -> None:
    print(f"\n{'texts read, the reader alone':30}{'RSS':>8}{'PSS':>8}{'own':>8}   MB")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "capture").mkdir()
        command = [sys.executable, "-c", _READER, folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as reader:
            assert reader.stdin is not None
            reader.stdin.write(ft.head())
            begin_s = time.monotonic()
            for begin in range(0, TEXTS, STEP):
                reader.stdin.write(_texts(begin))
                reader.stdin.flush()
                if (begin + STEP) % (TEXTS // 6) == 0:
                    memory = psutil.Process(reader.pid).memory_full_info()
                    sizes = (memory.rss, memory.pss, memory.uss)
                    print(f"  {begin + STEP:<28,}" + "".join(f"{size / MB:8.1f}" for size in sizes))
            rate = TEXTS / (time.monotonic() - begin_s)
            reader.stdin.write(ft.end(ft.BEGIN_NS + TEXTS * ft.MS))
            reader.stdin.close()
    print(f"  {rate:,.0f} texts/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=int, default=20)
    own_options, options = parser.parse_known_args()
    _beside_a_server(own_options.seconds, options or ["--convert", "later"])
    _reader_alone()


if __name__ == "__main__":
    main()
