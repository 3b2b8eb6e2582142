# SPDX-License-Identifier: Apache-2.0
"""How often heat made CPUs throttle themselves while something was recorded.

The kernel counts such events of each core and package in cpu*/thermal_throttle (Linux,
arch/x86/kernel/cpu/mce/therm_throt.c; Intel CPUs alone have them). Everybody may read these files.
"""

from __future__ import annotations

import re
from pathlib import Path

from qjoule.machine.facts import read_text
from qjoule.trace.meta import MOST_THROTTLED, Throttled

ROOT = Path("/")
_CPU, _COUNT = re.compile(r"cpu[0-9]{1,5}"), re.compile(r"[0-9]{1,20}", re.ASCII)
_KINDS = ("core", "package")
_Counts = dict[tuple[str, str], int]  #: by CPU and kind


class ThrottleCounts:
    """The counts as they are now, to be compared with those of a later time."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root, self._before = root, _read(root)

    def since(self) -> Throttled | None:
        """The most events that one CPU has counted since then; None: the kernel shows no counts.

        All CPUs of a package count its events, so they are not added up. A CPU whose count went
        back, or rose more than possible, is left out.
        """
        after = _read(self._root) if self._before else {}
        most: dict[str, int] = {}
        for key, count in after.items():
            rise = count - self._before.get(key, count + 1)
            if 0 <= rise <= MOST_THROTTLED:
                most[key[1]] = max(rise, most.get(key[1], 0))
        return Throttled(*(most.get(kind) for kind in _KINDS)) if most else None


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
