# SPDX-License-Identifier: Apache-2.0
"""The power limit of each processor package, by the kernel's powercap tree, for `CpuFrequency`.

Kernel documentation: Documentation/power/powercap/powercap.rst. Constraint 0 of RAPL's package
zones is the long-term limit (PL1): the mean power over its time window, some seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from qjoule.api import QjouleError, UsageError
from qjoule_studies.workload import Value

POWERCAP = Path("/sys/class/powercap")
_LIMIT, _NAME = "constraint_0_power_limit_uw", "constraint_0_name"
_LEAST, _GREATEST = "constraint_0_min_power_uw", "constraint_0_max_power_uw"
_STEP_UW = 125_001  #: the hardware rounds to eighths of a watt


class PowerLimit:
    """The limits of all packages below `root`."""

    def __init__(self, root: Path = POWERCAP) -> None:
        self._zones = sorted(
            zone for zone in root.glob("intel-rapl:[0-9]*") if _text(zone / "name")[:7] == "package"
        )

    def check(self, levels: Sequence[Value]) -> None:
        """Whether every level (W) can be set here, or is set already. Sets nothing.

        Raises `QjouleError` if no limit can be set, or `UsageError` with the first level that is
        outside of what the hardware says.
        """
        if not self._zones:
            raise QjouleError(
                "no power limit can be set: this machine shows no RAPL package in powercap "
                "(virtual machines have none)"
            )
        for zone in self._zones:
            for why in _unusable(zone):
                raise QjouleError(f"no power limit can be set: {why}")
            now_uw = int(read_setting(zone / _LIMIT))
            # Firmware that does not know it reports 0 or nothing.
            least_uw, greatest_uw = (int(_text(zone / end) or 0) for end in (_LEAST, _GREATEST))
            for level in levels:
                uw = _microwatts(level)
                within = uw > 0 and least_uw <= uw and (not greatest_uw or uw <= greatest_uw)
                if not within and abs(uw - now_uw) >= _STEP_UW:
                    shown = f"{greatest_uw / 1e6:g}" if greatest_uw else "(unknown)"
                    raise UsageError(
                        f"{level} W cannot be set: the hardware has {least_uw / 1e6:g} to {shown} W"
                    )

    def present_w(self) -> set[float]:
        """The limits of the packages now. Raises `QjouleError`: one cannot be read."""
        return {int(read_setting(zone / _LIMIT)) / 1e6 for zone in self._zones}

    def set(self, watts: float) -> None:
        """Sets it for each package. Raises `QjouleError` if the kernel or the hardware refuses."""
        for zone in self._zones:
            write_setting(zone / _LIMIT, str(_microwatts(watts)), _STEP_UW)

    def state(self) -> dict[str, dict[str, str]]:
        """What `restore` puts back, by zone. Raises `QjouleError`."""
        return {str(zone): {_LIMIT: read_setting(zone / _LIMIT)} for zone in self._zones}

    def restore(self, zone: Path, values: Mapping[str, str]) -> None:
        """Raises `QjouleError` or `KeyError`."""
        write_setting(zone / _LIMIT, values[_LIMIT], _STEP_UW)


def _unusable(zone: Path) -> Iterator[str]:
    if _text(zone / _NAME) != "long_term":
        yield f"{zone} has no long-term limit (processors of AMD have none)"
    if _text(zone / "enabled") == "0":
        yield f"{zone} is not enabled, so its limit has no effect"
    if not os.access(zone / _LIMIT, os.W_OK):
        yield f"{zone / _LIMIT} cannot be written; run it with sudo"


def _microwatts(watts: Value) -> int:
    return round(float(watts) * 1e6)


def _text(file: Path) -> str:
    """The file's text; empty if it is missing or empty."""
    with suppress(OSError):
        return file.read_text().strip()
    return ""


def read_setting(file: Path) -> str:
    """The content of a file of sysfs. Raises `QjouleError`."""
    try:
        return file.read_text().strip()
    except OSError as error:
        raise QjouleError(f"cannot read {file}: {error.strerror}") from error


def write_setting(file: Path, value: str, step: int) -> None:
    """Sets a file of sysfs. Raises `QjouleError` unless it then has this value, as near to it as
    the hardware's step.
    """
    try:
        file.write_text(value)
    except OSError as error:
        raise QjouleError(f"cannot set {file} to {value}: {error.strerror}") from error
    read_back = read_setting(file)
    near = read_back.isdigit() and value.isdigit() and abs(int(read_back) - int(value)) < step
    if read_back != value and not near:
        raise QjouleError(f"cannot set {file} to {value}: it stays {read_back}")
