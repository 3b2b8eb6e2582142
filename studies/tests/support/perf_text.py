# SPDX-License-Identifier: Apache-2.0
"""Handmade output of `perf script`; a fake `perf`; traces made from such output."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from qjoule.trace.reader import Trace
from qjoule_studies.import_perf.build import Done, Request, import_perf
from qjoule_studies.import_perf.scan import parse_server

HEADER = b"""# ========
# hostname : db1.example
# os release : 6.1.0-example
# perf version : 6.1.0
# cpudesc : Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz
# cpuid : GenuineIntel,6,79,1
# sibling threads : 0-1
# CPU 0: Core ID 0, Die ID 0, Socket ID 0
# CPU 1: Core ID 0, Die ID 0, Socket ID 0
# clockid: monotonic (1)
# reference time: 2026-11-22 18:35:22.000000 = 1795372522.000000 (TOD) = 100.000000000 (monotonic)
# ========
#
"""
SERVER, THREAD, CLIENT = 800, 801, 900
BEGIN_NS = 100_000_000_000


class PerfText:
    """Lines in the order in which they are added. Times are ns after `BEGIN_NS`."""

    def __init__(self, header: bytes = HEADER) -> None:
        self.header = header
        self.lines: list[bytes] = []
        self.heads: list[bytes] = []  #: what `perf script` prints without payloads
        for pid, parent, comm in (
            (1, 0, b"init"),
            (2, 0, b"kthreadd"),
            (15, 2, b"ksoftirqd/0"),
            (SERVER, 1, b"mariadbd"),
            (CLIENT, 1, b"client"),
        ):
            self.side(b"PERF_RECORD_FORK(%d:%d):(%d:%d)" % (pid, pid, parent, parent))
            self.side(b"PERF_RECORD_COMM: %s:%d/%d" % (comm, pid, pid))
        self.side(b"PERF_RECORD_FORK(%d:%d):(%d:%d)" % (SERVER, THREAD, SERVER, SERVER))
        self.side(b"PERF_RECORD_COMM: mariadbd:%d/%d" % (SERVER, THREAD))

    @property
    def text(self) -> bytes:
        return self.header + b"".join(self.lines)

    def write(self, directory: Path, name: str = "perf.txt") -> Path:
        path = directory / name
        path.write_bytes(self.text)
        return path

    def side(self, text: bytes, at_ns: int | None = None, cpu: int = 0, tid: int = 0) -> None:
        """One of perf's own records; without a time, of what existed before."""
        self._add(at_ns, cpu, (tid, tid), text, b"")

    def switch(
        self, at_ns: int, before: int, after: int, *, cpu: int = 0, comm: bytes = b"x"
    ) -> None:
        payload = (
            b"prev_comm=%s prev_pid=%d prev_prio=120 prev_state=S ==> "
            b"next_comm=%s next_pid=%d next_prio=120" % (comm, before, comm, after)
        )
        pid = SERVER if before == THREAD else before
        self._add(at_ns, cpu, (pid, before), b"sched:sched_switch:", payload)

    def begin(
        self,
        at_ns: int,
        text: bytes,
        *,
        cpu: int = 0,
        command: int = 3,
        thd: int = 0x7F00,
        size: int | None = None,
        printed: bytes | None = None,
    ) -> None:
        """A hit of dispatch_command's probe; `printed` replaces the text."""
        payload = b'(55aa) command=%d thd=%#x bytes=%d first=%#x text="%s"' % (
            *(command, thd, len(text) if size is None else size),
            *(struct.unpack("<Q", text[:8].ljust(8, b"\0"))[0],),
            text if printed is None else printed,
        )
        self._add(at_ns, cpu, (SERVER, THREAD), b"qjoule_800:mysql_begin_1:", payload)

    def end(self, at_ns: int, *, cpu: int = 0, result: int = 0) -> None:
        payload = b"(55aa <- 55ff) result=%d" % result
        self._add(at_ns, cpu, (SERVER, THREAD), b"qjoule_800:mysql_end_1:", payload)

    def probe(
        self, at_ns: int, event: bytes, payload: bytes, *, pid: int = SERVER, tid: int = THREAD
    ) -> None:
        self._add(at_ns, 0, (pid, tid), event, payload)

    def _add(
        self, at_ns: int | None, cpu: int, whose: tuple[int, int], event: bytes, payload: bytes
    ) -> None:
        t_ns = 0 if at_ns is None else BEGIN_NS + at_ns
        place = b"%5d/%-5d [%03d] %5d.%09d: " % (*whose, cpu, *divmod(t_ns, 10**9))
        self.heads.append(place + event + b" \n")
        self.lines.append(place + event + (b" " + payload if payload else b"") + b"\n")


def one_query() -> PerfText:
    """A statement of 5 ms on CPU 0, within a slice of 8 ms of its thread; 40 ms in all."""
    recorded = PerfText()
    ms = 1_000_000
    recorded.switch(0, 0, CLIENT)
    recorded.switch(1 * ms, 0, CLIENT, cpu=1)
    recorded.switch(2 * ms, CLIENT, THREAD)
    recorded.begin(3 * ms, b"select 'secret' from t where id = 7")
    recorded.end(8 * ms)
    recorded.switch(10 * ms, THREAD, 0)
    recorded.switch(40 * ms, 0, CLIENT)
    return recorded


def imported(path: Path, directory: Path, **options: Any) -> tuple[Trace, Done]:
    servers = tuple(parse_server(text) for text in options.pop("servers", ()))
    done = import_perf(Request(path, servers=servers, **options), directory / "t")
    return Trace(directory / "t"), done


def query_ns(trace: Trace) -> int:
    segments = trace.pandas("segments")
    mine = segments[segments["query"].notna()]
    return int((mine["t1_ns"] - mine["t0_ns"]).sum())
