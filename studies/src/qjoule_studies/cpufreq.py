# SPDX-License-Identifier: Apache-2.0
"""Governor and frequency of all CPUs as a study sets them, by sysfs, and puts them back.

Kernel documentation: Documentation/admin-guide/pm/cpufreq.rst. A frequency is set as the policy's
least and greatest at once, whatever the governor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from qjoule.api import QjouleError, UsageError
from qjoule.api.command import write_whole
from qjoule_studies.plan import CPU_FACTORS, FREQUENCY, GOVERNOR, Plan
from qjoule_studies.workload import Value

ROOT = Path("/sys/devices/system/cpu")
SAVED = "cpufreq.json"  #: in the study's directory, as long as something is set
_GOVERNOR, _LEAST, _GREATEST = "scaling_governor", "scaling_min_freq", "scaling_max_freq"
_STEP_KHZ = 1_000


class CpuFrequency:
    """Sets levels of the factors `governor` and `frequency_mhz`.

    The old values are written to `saved` before anything is set. After a killed study, the next one
    in the same directory restores them.
    """

    def __init__(self, saved: Path, root: Path = ROOT) -> None:
        self._saved = saved
        self._policies = sorted(root.glob("cpu[0-9]*/cpufreq"))

    def check(self, plan: Plan) -> None:
        """Whether every level can be set here. Sets nothing.

        Raises `QjouleError` with the first that cannot, or `UsageError` if no CPU has it.
        """
        for factor, levels in plan.factors.items():
            if factor not in CPU_FACTORS:
                continue
            if not self._policies:
                raise QjouleError(
                    f"{factor} cannot be set: this machine shows no cpufreq (virtual "
                    "machines often have none); leave the factor out"
                )
            files = (_GOVERNOR,) if factor == GOVERNOR else (_LEAST, _GREATEST)
            for policy in self._policies:
                for file in files:
                    if not os.access(policy / file, os.W_OK):
                        raise QjouleError(
                            f"{factor} cannot be set: {policy / file} cannot be written; run "
                            "it with sudo, or leave the factor out"
                        )
                for level in levels:
                    _check_level(policy, factor, level)

    def restore_from_before(self) -> None:
        """Puts back what a study that was killed has left."""
        if self._saved.exists():
            self.restore()

    def set(self, levels: Mapping[str, Value]) -> None:
        """Sets what of `levels` is the CPUs'. Raises `QjouleError` if the kernel refuses."""
        wanted = {name: levels[name] for name in CPU_FACTORS if name in levels}
        if not wanted:
            return
        self._save()
        for policy in self._policies:
            if GOVERNOR in wanted:
                _write(policy / _GOVERNOR, str(wanted[GOVERNOR]))
            if FREQUENCY in wanted:
                _set_limits(policy, *2 * (_khz(wanted[FREQUENCY]),))

    def restore(self) -> None:
        """As it was before the study. Raises `QjouleError` after trying them all."""
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
                _write(policy / _GOVERNOR, values[_GOVERNOR])
                _set_limits(policy, int(values[_LEAST]), int(values[_GREATEST]))
            except (QjouleError, ValueError, KeyError) as error:
                failed.append(str(error))
        if failed:
            raise QjouleError(f"the CPUs' frequency is not as it was: {failed[0]}")
        self._saved.unlink()

    def _save(self) -> None:
        if self._saved.exists():
            return
        files = (_GOVERNOR, _LEAST, _GREATEST)
        before = {str(p): {file: _read(p / file) for file in files} for p in self._policies}
        write_whole(self._saved, json.dumps(before).encode())


def _check_level(policy: Path, factor: str, level: Value) -> None:
    if factor == GOVERNOR:
        known = _read(policy / "scaling_available_governors").split()
        if str(level) not in known:
            raise UsageError(f"there is no governor {level!r}: {policy.parent.name} has {known}")
        return
    least, most = (int(_read(policy / f"cpuinfo_{end}_freq")) for end in ("min", "max"))
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
    if greatest_khz < int(_read(policy / _LEAST)):
        order.reverse()
    for file, khz in order:
        _write(policy / file, str(khz))


def _write(file: Path, value: str) -> None:
    try:
        file.write_text(value)
    except OSError as error:
        raise QjouleError(f"cannot set {file} to {value}: {error.strerror}") from error
    found = _read(file)
    exact = found == value
    near = found.isdigit() and value.isdigit() and abs(int(found) - int(value)) < _STEP_KHZ
    if not exact and not near:
        raise QjouleError(f"cannot set {file} to {value}: it stays {found}")


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError as error:
        raise QjouleError(f"cannot read {file}: {error.strerror}") from error
