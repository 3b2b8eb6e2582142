# SPDX-License-Identifier: Apache-2.0
"""How often heat made CPUs throttle themselves while something was recorded or shown live.

The kernel counts such events of each core and package in cpu*/thermal_throttle (Linux,
arch/x86/kernel/cpu/mce/therm_throt.c; Intel CPUs alone have them). Everybody may read these files.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from qjoule.machine.facts import read_text
from qjoule.trace.meta import MOST_THROTTLED, Throttled

ROOT = Path("/")
#: Between two readings of a live view. One takes 9 ms of CPU time with 256 CPUs.
PERIOD_S = 10.0
RECENT_S = 60.0  #: a live view tells of an event for so long
_CPU, _COUNT = re.compile(r"cpu[0-9]{1,5}"), re.compile(r"[0-9]{1,20}", re.ASCII)
_KINDS = ("core", "package")
_Counts = dict[tuple[str, str], int]  #: by CPU and kind


class ThrottleCounts:
    """The counts as they are now, to be compared with those of a later time."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root, self._counts = root, _read(root)

    def since(self) -> Throttled | None:
        """The events until now, as `until`."""
        return self.until(ThrottleCounts(self._root)) if self._counts else None

    def until(self, later: ThrottleCounts) -> Throttled | None:
        """The most events that one CPU counted in between; None: the kernel shows no counts.

        All CPUs of a package count its events, so they are not added up. A CPU whose count went
        back, or rose more than possible, is left out.
        """
        most: dict[str, int] = {}
        for key, count in later._counts.items():
            rise = count - self._counts.get(key, count + 1)
            if 0 <= rise <= MOST_THROTTLED:
                most[key[1]] = max(rise, most.get(key[1], 0))
        return Throttled(*(most.get(kind) for kind in _KINDS)) if most else None


class RecentCounts:
    """The counts of the last minute for a live view, read at most every `PERIOD_S`."""

    def __init__(self, root: Path = ROOT, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._readings = deque([(clock(), ThrottleCounts(root))])

    def newest(self) -> ThrottleCounts:
        """The counts as they are now, or were less than `PERIOD_S` ago."""
        now_s = self._clock()
        if now_s - self._readings[-1][0] >= PERIOD_S:
            self._readings.append((now_s, ThrottleCounts(self._root)))
            while self._readings[1][0] <= now_s - RECENT_S:
                self._readings.popleft()
        return self._readings[-1][1]

    def recent(self) -> Throttled | None:
        """The events since a minute ago, or since the last call if that is longer ago."""
        newest = self.newest()
        return self._readings[0][1].until(newest)


def _read(root: Path) -> _Counts:
    base = root / "sys/devices/system/cpu"
    try:
        cpus = [path for path in base.iterdir() if _CPU.fullmatch(path.name)]
    except OSError:
        return {}
    texts = {
        (cpu.name, kind): read_text(cpu / f"thermal_throttle/{kind}_throttle_count")
        for cpu in cpus
        for kind in _KINDS
    }
    return {key: int(text) for key, text in texts.items() if _COUNT.fullmatch(text)}
