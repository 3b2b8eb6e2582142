# SPDX-License-Identifier: Apache-2.0
"""Runs on the hypervisor: sends a VM its part of the host's energy.

    python3 export.py --to 192.0.2.10:4490 --key FILE --cgroup /sys/fs/cgroup/machine.slice/VM

Reads the package counters of the host's powercap tree and the CPU time of the VM's cgroup (or of
its QEMU process, --pid) and of all CPUs. It sends one datagram per interval and receives nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from feed_message import INTERVALS_MS, Message, encode, read_key

POWERCAP = Path("/sys/class/powercap")
PROC = Path("/proc")
SHARE_S = 1.0  #: the kernel counts CPU time in ticks of some ms, so shares are of a second
MOST_W = 2000.0  #: per package; more is an error of the counter
TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")


class CounterError(Exception):
    """The host's counters cannot be right; their energy since the last reading is unknown."""


class Packages:
    """The counters of all packages."""

    def __init__(self, root: Path) -> None:
        self._zones = [
            zone
            for zone in sorted(root.glob("intel-rapl:*"))
            if re.fullmatch(r"intel-rapl:\d+", zone.name)
            and (zone / "name").read_text().startswith("package-")
        ]
        if not self._zones:
            raise FileNotFoundError(f"no package under {root}")
        self._ranges = [int((zone / "max_energy_range_uj").read_text()) for zone in self._zones]
        self._last = self._read()

    def _read(self) -> list[int]:
        return [int((zone / "energy_uj").read_text()) for zone in self._zones]

    def drawn_uj(self, seconds: float) -> int:
        """Energy since the last call, which was `seconds` ago; raises `CounterError`."""
        now, before = self._read(), self._last
        self._last = now
        drawn = 0
        for new, old, greatest in zip(now, before, self._ranges, strict=True):
            step = new - old if new >= old else new - old + greatest + 1
            if not 0 <= step <= MOST_W * (seconds + 0.01) * 1e6:
                raise CounterError(f"a package's counter went from {old} to {new} uJ")
            drawn += step
        return drawn


def busy_us(proc: Path) -> int:
    """CPU time of everything on the host; the time of guests is part of `user`."""
    with (proc / "stat").open() as file:
        user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + softirq) * TICK_US


def cgroup_us(cgroup: Path) -> int:
    """CPU time of a cgroup (version 2)."""
    for line in (cgroup / "cpu.stat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "usage_usec":
            return int(value)
    raise ValueError(f"{cgroup / 'cpu.stat'} has no usage_usec")


def process_us(pid: int, proc: Path) -> int:
    """CPU time of a process with all its threads."""
    fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_US


@dataclass
class Part:
    """The VM's part of energy, in whole uJ.

    Of the host's power at rest (`rest_w`) the VM has the fixed share `rest_share`. All other energy
    is divided by CPU time.
    """

    rest_w: float
    rest_share: float
    carry_uj: float = 0.0

    def of(self, energy_uj: int, seconds: float, vm_us: int, all_us: int) -> int:
        rest_uj = min(float(energy_uj), self.rest_w * seconds * 1e6)
        share = min(max(vm_us / all_us, 0.0), 1.0) if all_us > 0 else 0.0
        self.carry_uj += rest_uj * self.rest_share + (energy_uj - rest_uj) * share
        whole = int(self.carry_uj)
        self.carry_uj -= whole
        return whole


@dataclass
class Exporter:
    """The running sum of one VM. `vm_us` and `all_us` read CPU time."""

    packages: Packages
    vm_us: Callable[[], int]
    all_us: Callable[[], int]
    part: Part
    interval_ms: int

    def __post_init__(self) -> None:
        self._times: deque[tuple[int, int]] = deque(
            [(self.vm_us(), self.all_us())], maxlen=int(SHARE_S * 1000 / self.interval_ms) + 2
        )
        self._last_s = time.monotonic()
        self._begin()

    def _begin(self) -> None:
        self._session, self._sequence, self._energy_uj = time.time_ns(), 0, 0

    def next(self) -> Message:
        """The next message. Raises OSError or ValueError where the host cannot be read."""
        now_s = time.monotonic()
        seconds = now_s - self._last_s
        times = (self.vm_us(), self.all_us())
        try:
            drawn_uj = self.packages.drawn_uj(seconds)
        except CounterError as error:
            # A new session: the guest sees that its counter started again.
            print(f"export: {error}", file=sys.stderr, flush=True)
            self._begin()
            drawn_uj = 0
        self._last_s = now_s
        self._times.append(times)
        vm_us, all_us = (new - old for new, old in zip(times, self._times[0], strict=True))
        self._energy_uj += self.part.of(drawn_uj, seconds, vm_us, all_us)
        self._sequence += 1
        return Message(self._session, self._sequence, self.interval_ms, self._energy_uj)


def export(exporter: Exporter, to: tuple[str, int], key: bytes) -> None:
    """Sends until it is interrupted. What cannot be read or sent is said once and left out."""
    last_error, due_s = "", time.monotonic()
    family = socket.AF_INET6 if ":" in to[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        while True:
            due_s = max(due_s + exporter.interval_ms / 1000, time.monotonic())
            time.sleep(max(due_s - time.monotonic(), 0))
            try:
                sender.sendto(encode(exporter.next(), key), to)
                last_error = ""
            except (OSError, ValueError) as error:
                if str(error) != last_error:
                    print(f"export: {error}", file=sys.stderr, flush=True)
                last_error = str(error)


def address(text: str) -> tuple[str, int]:
    """`ADDRESS:PORT`; an IPv6 address in brackets."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=address, required=True, metavar="ADDRESS:PORT")
    parser.add_argument("--key", type=Path, required=True, metavar="FILE")
    vm = parser.add_mutually_exclusive_group(required=True)
    vm.add_argument("--cgroup", type=Path, metavar="DIR")
    vm.add_argument("--pid", type=int)
    parser.add_argument("--interval-ms", type=int, default=100, metavar="N")
    parser.add_argument("--rest-w", type=float, default=0.0, metavar="W")
    parser.add_argument("--rest-share", type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--powercap", type=Path, default=POWERCAP, metavar="DIR")
    parser.add_argument("--proc", type=Path, default=PROC, metavar="DIR")
    options = parser.parse_args()
    if options.interval_ms not in INTERVALS_MS:
        parser.error(f"--interval-ms: {INTERVALS_MS.start} to {INTERVALS_MS.stop - 1}")
    if not (0 <= options.rest_w < 1e5 and 0 <= options.rest_share <= 1):
        parser.error("--rest-w must not be negative, and --rest-share is from 0 to 1")
    proc = options.proc

    def vm_us() -> int:
        return cgroup_us(options.cgroup) if options.cgroup else process_us(options.pid, proc)

    try:
        exporter = Exporter(
            Packages(options.powercap),
            vm_us,
            lambda: busy_us(proc),
            Part(options.rest_w, options.rest_share),
            options.interval_ms,
        )
        export(exporter, options.to, read_key(options.key))
    except (OSError, ValueError) as error:
        sys.exit(f"export: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
