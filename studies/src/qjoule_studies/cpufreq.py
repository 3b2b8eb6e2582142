# SPDX-License-Identifier: Apache-2.0
"""Governor, frequency and power limit of all CPUs as a study sets them, by sysfs, and puts back.

Kernel documentation: Documentation/admin-guide/pm/cpufreq.rst. A frequency is set as the policy's
least and greatest at once, whatever the governor; a greatest frequency leaves the least as it is.

The control workload is fixed work, timed again and again until the machine is at rest. A run heats
the machine, fills its caches and leaves dirty pages, which would affect the next measurement. When
fixed work takes as long as the last few times, these effects are over.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from qjoule.api import QjouleError, UsageError
from qjoule.api.command import write_whole
from qjoule_studies.plan import (
    CPU_FACTORS,
    FREQUENCY,
    GOVERNOR,
    MAX_FREQUENCY,
    POWER_LIMIT,
    Control,
    Plan,
)
from qjoule_studies.power_limit import POWERCAP, PowerLimit, read_setting, write_setting
from qjoule_studies.workload import Value

ROOT = Path("/sys/devices/system/cpu")
SAVED = "cpufreq.json"  #: in the study's directory, as long as something is set
_GOVERNOR, _LEAST, _GREATEST = "scaling_governor", "scaling_min_freq", "scaling_max_freq"
_FILES = {GOVERNOR: (_GOVERNOR,), FREQUENCY: (_LEAST, _GREATEST), MAX_FREQUENCY: (_GREATEST,)}
_STEP_KHZ = 1_000


class CpuFrequency:
    """Sets levels of the factors of `CPU_FACTORS`.

    The old values are written to `saved` before anything is set. After a killed study, the next one
    in the same directory restores them.
    """

    def __init__(self, saved: Path, root: Path = ROOT, powercap: Path = POWERCAP) -> None:
        self._saved = saved
        self._policies = sorted(root.glob("cpu[0-9]*/cpufreq"))
        self._power = PowerLimit(powercap)

    def check(self, plan: Plan) -> None:
        """Whether every level can be set here. Sets nothing.

        Raises `QjouleError` with the first that cannot, or `UsageError` if no CPU has it.
        """
        for factor, levels in plan.factors.items():
            if factor == POWER_LIMIT:
                self._power.check(levels)
            if factor not in CPU_FACTORS or factor == POWER_LIMIT:
                continue
            if not self._policies:
                raise QjouleError(
                    f"{factor} cannot be set: this machine shows no cpufreq (virtual "
                    "machines often have none); leave the factor out"
                )
            files = _FILES[factor]
            for policy in self._policies:
                for file in files:
                    if not os.access(policy / file, os.W_OK):
                        raise QjouleError(
                            f"{factor} cannot be set: {policy / file} cannot be written; run "
                            "it with sudo, or leave the factor out"
                        )
                for level in levels:
                    _check_level(policy, factor, level)

    def present(self, factor: str) -> float:
        """The level of `power_limit_w` or `max_frequency_mhz` that holds now. Raises `QjouleError`:
        there is none, or not the same for all.
        """
        if factor == POWER_LIMIT:
            levels = self._power.present_w()
        else:
            levels = {int(read_setting(policy / _GREATEST)) / 1000 for policy in self._policies}
        if len(levels) != 1:
            shown = ", ".join(f"{level:g}" for level in sorted(levels)) or "none"
            raise QjouleError(f"{factor} is not one and the same here now: {shown}")
        return levels.pop()

    def restore_from_before(self) -> None:
        """Puts back what a study that was killed has left."""
        if self._saved.exists():
            self.restore()

    def set(self, levels: Mapping[str, Value]) -> None:
        """Sets those of `levels` that are factors of the CPUs. Raises `QjouleError` if refused."""
        wanted = {name: levels[name] for name in CPU_FACTORS if name in levels}
        if not wanted:
            return
        self._save(wanted)
        for policy in self._policies:
            if GOVERNOR in wanted:
                _write(policy / _GOVERNOR, str(wanted[GOVERNOR]))
            if FREQUENCY in wanted:
                _set_limits(policy, *2 * (_khz(wanted[FREQUENCY]),))
            if MAX_FREQUENCY in wanted:
                _write(policy / _GREATEST, str(_khz(wanted[MAX_FREQUENCY])))
        if POWER_LIMIT in wanted:
            self._power.set(float(wanted[POWER_LIMIT]))

    def restore(self) -> None:
        """Sets all as before the study. Raises `QjouleError` after trying every setting."""
        try:
            before: dict[str, dict[str, str]] = json.loads(self._saved.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise QjouleError(
                f"{self._saved} cannot be read ({error}): set the CPUs' governor by hand"
            ) from error
        failed: list[str] = []
        for place, values in before.items():
            policy = Path(place)
            try:
                if _GOVERNOR not in values:
                    self._power.restore(policy, values)
                    continue
                _write(policy / _GOVERNOR, values[_GOVERNOR])
                _set_limits(policy, int(values[_LEAST]), int(values[_GREATEST]))
            except (QjouleError, ValueError, KeyError) as error:
                failed.append(str(error))
        if failed:
            raise QjouleError(f"the CPUs' settings are not as they were: {failed[0]}")
        self._saved.unlink()

    def _save(self, wanted: Collection[str]) -> None:
        if self._saved.exists():
            return
        files = (_GOVERNOR, _LEAST, _GREATEST)
        before = self._power.state() if POWER_LIMIT in wanted else {}
        for policy in self._policies if set(wanted) - {POWER_LIMIT} else ():
            before[str(policy)] = {file: read_setting(policy / file) for file in files}
        write_whole(self._saved, json.dumps(before).encode())


def _check_level(policy: Path, factor: str, level: Value) -> None:
    if factor == GOVERNOR:
        governors = read_setting(policy / "scaling_available_governors").split()
        if str(level) not in governors:
            raise UsageError(
                f"there is no governor {level!r}: {policy.parent.name} has {governors}"
            )
        return
    least, most = (int(read_setting(policy / f"cpuinfo_{end}_freq")) for end in ("min", "max"))
    if factor == MAX_FREQUENCY:
        least = max(least, int(read_setting(policy / _LEAST)))
    if not least <= _khz(level) <= most:
        raise UsageError(
            f"{level} MHz cannot be set: {policy.parent.name} has {least // 1000} to "
            f"{most // 1000} MHz"
        )
    with suppress(OSError, ValueError):
        steps = list(map(int, (policy / "scaling_available_frequencies").read_text().split()))
        if steps and not any(abs(step - _khz(level)) < _STEP_KHZ for step in steps):
            shown = ", ".join(str(step // 1000) for step in sorted(steps))
            raise UsageError(f"{level} MHz cannot be set: {policy.parent.name} has {shown} MHz")


def _khz(mhz: Value) -> int:
    return round(float(mhz) * 1000)


def _set_limits(policy: Path, least_khz: int, greatest_khz: int) -> None:
    """At no moment may the least be above the greatest: the kernel refuses that."""
    order = [(_GREATEST, greatest_khz), (_LEAST, least_khz)]
    if greatest_khz < int(read_setting(policy / _LEAST)):
        order.reverse()
    for file, khz in order:
        _write(policy / file, str(khz))


def _write(file: Path, value: str) -> None:
    write_setting(file, value, _STEP_KHZ)


_BLOCK = bytes(1 << 20)
_BLOCKS = 64  #: some 50 ms with instructions for SHA-256, some 200 ms without


@dataclass(frozen=True)
class Settled:
    """Whether it settled, by which relative standard deviation, and after how many times."""

    settled: bool
    deviation: float
    times: int

    @property
    def words(self) -> str:
        return (
            f"the control workload's last times differ by {self.deviation:.1%} after {self.times} "
            "tries"
        )


def hash_once() -> float:
    """Hashes 64 MiB; how long that took, in seconds."""
    begin = time.perf_counter()
    digest = hashlib.sha256()
    for _ in range(_BLOCKS):
        digest.update(_BLOCK)
    digest.digest()
    return time.perf_counter() - begin


def settle(
    control: Control, once: Callable[[], float], sleep: Callable[[float], None] = time.sleep
) -> Settled:
    """Times the control until its last times differ by at most `control.within`.

    Args:
        once: does the fixed work; its time, in any unit.

    Only times since the call count: earlier ones show nothing about what the last run left behind.
    """
    last: deque[float] = deque(maxlen=control.last)
    deviation = math.inf
    for tries in range(1, control.tries + 1):
        last.append(once())
        if len(last) == control.last:
            deviation = relative_deviation(last)
            if deviation <= control.within:
                return Settled(True, deviation, tries)
        sleep(control.pause_s)
    return Settled(False, deviation, control.tries)


def relative_deviation(times: deque[float]) -> float:
    """Standard deviation (n - 1) over the mean; infinite where the mean is not positive."""
    mean = fmean(times)
    return stdev(times) / mean if mean > 0 else math.inf
