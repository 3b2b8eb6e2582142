# SPDX-License-Identifier: Apache-2.0
"""Lists the energy sources that exist and may be read, without the tracer.

``qjoule-tracer --energy auto`` makes the decision, because only the tracer can see whether a
counter moves (a guest may show a PMU whose counters stay at zero).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.installed import installed_program
from qjoule.machine.facts import (
    MEMORY_BY_METER,
    NO_DRAM_ON_AMD,
    Check,
    is_amd,
    parse_cpu_list,
    read_text,
)
from qjoule.root_part.client import us

ROOT = Path("/")
NO_RAPL = "modprobe intel_rapl_msr; in a virtual machine use --energy auto or estimated"


_CONTROL_TYPES = ("intel-rapl", "intel-rapl-tpmi")
#: Chips of hwmon that the tracer reads, and their files: see tracer/energy/hwmon.c.
_METERS = {"power_meter": "power1_average", "amd_energy": "energy1_input"}


@dataclass(frozen=True)
class Source:
    """An energy source of the tracer. `usage`: its form as an argument of `--energy`."""

    name: str
    grade: str
    usage: str


@cache
def tracer_sources() -> tuple[Source, ...]:
    """The sources that the installed tracer has, in the order of `auto`; none without a tracer."""
    try:
        program = installed_program("qjoule-tracer")
        done = subprocess.run(
            [program, "--energy-sources"], capture_output=True, text=True, timeout=10, check=True
        )
    except (QjouleError, OSError, subprocess.SubprocessError):
        return ()
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return tuple(Source(name, grade, usage) for name, grade, _, usage in rows)


def may_read(path: Path) -> bool:
    return os.access(path, os.R_OK, effective_ids=True)


def powercap_tree(root: Path = ROOT, readable: Callable[[Path], bool] = may_read) -> Check:
    """`readable`: whether the process that will read a counter may do so."""
    return _check("powercap", root / "sys/class/powercap", NO_RAPL, readable)


def host_tree(folder: Path, readable: Callable[[Path], bool] = may_read) -> Check:
    """Checks a tree that a hypervisor fills for this guest. `readable`: as in `powercap_tree`."""
    return _check("host energy", folder, "mount the tree that the hypervisor exports", readable)


def perf_pmu(root: Path = ROOT) -> Check:
    folder = root / "sys/bus/event_source/devices/power"
    events = sorted(p.name for p in folder.glob("events/energy-*") if "." not in p.name)
    if not events:
        return Check("perf energy", False, f"no energy events in {folder}", NO_RAPL)
    ok = "energy-pkg" in events
    detail = ", ".join(events) + ("" if ok else ", none of a package")
    return Check("perf energy", ok, detail, "" if ok else NO_RAPL)


def core_energy(root: Path = ROOT) -> Check | None:
    """Counters of single cores, beside those of packages; None where the CPUs have none.

    Linux registers this PMU together with the one of packages (arch/x86/events/rapl.c).
    """
    folder = root / "sys/bus/event_source/devices/power_core"
    if not (folder / "events/energy-core").exists():
        if not _is_metered_amd(root):
            return None
        detail = f"no energy-core in {folder}: joules are divided between cores by the model alone"
        fix = "Linux 6.13 or later has it"
        return Check(
            "core energy", False, detail, fix if perf_pmu(root).ok else f"modprobe rapl; {fix}"
        )
    try:
        cores = len(parse_cpu_list(read_text(folder / "cpumask")))
    except ValueError as error:
        return Check("core energy", False, f"{folder / 'cpumask'}: {error}", NO_RAPL)
    return Check("core energy", True, f"energy-core of {cores} core{'s' * (cores != 1)}")


def dram_energy(root: Path = ROOT) -> Check | None:
    """Warns that AMD's counters lack memory; None on other machines, and without counters."""
    if not _is_metered_amd(root):
        return None
    return Check("dram energy", False, NO_DRAM_ON_AMD, MEMORY_BY_METER)


def _is_metered_amd(root: Path) -> bool:
    """True for AMD CPUs whose packages' energy is counted."""
    info = read_text(root / "proc/cpuinfo")
    name = next((line for line in info.splitlines() if line.startswith("model name")), "")
    return is_amd(name) and bool(powercap_tree(root, lambda _: True).ok or perf_pmu(root).ok)


def hwmon_meters(root: Path = ROOT) -> Check | None:
    """Known power meters below /sys/class/hwmon; None if there is none. Few machines have one."""
    folder = root / "sys/class/hwmon"
    meters: list[Path] = []
    for name in (*folder.glob("hwmon*/name"), *folder.glob("hwmon*/device/name")):
        try:
            file = _METERS.get(name.read_text(encoding="utf-8", errors="replace").strip())
        except OSError:
            continue
        if file and (name.parent / file).exists():
            meters.append(name.parent / file)
    if not meters:
        return None
    names = ", ".join(sorted(_name(file.parent) for file in meters))
    if not all(map(may_read, meters)):
        return Check("hwmon", False, f"{names}: not readable", f"let user {us()} read its files")
    return Check("hwmon", True, names)


def _check(name: str, folder: Path, missing: str, readable: Callable[[Path], bool]) -> Check:
    """Checks the `intel-rapl:N` zones. Other control types show the same packages again
    (zones_find() in tracer/energy/zones.c)."""
    try:
        zones = next(filter(None, (_zones(folder, kind) for kind in _CONTROL_TYPES)), [])
        counters = [zone / "energy_uj" for zone in zones if (zone / "energy_uj").exists()]
    except PermissionError:
        return Check(name, False, f"user {us()} cannot read {folder}", "let that user read it")
    if not counters:
        return Check(name, False, f"no intel-rapl zones under {folder}", missing)
    names = ", ".join(sorted(_name(counter.parent) for counter in counters))
    if not all(map(readable, counters)):
        return Check(name, False, f"{names}: not readable", "run it with sudo")
    return Check(name, True, names)


def _zones(folder: Path, control_type: str) -> list[Path]:
    return [zone for zone in folder.glob(f"{control_type}:*") if zone.name.count(":") == 1]


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text(encoding="utf-8", errors="replace").strip() or zone.name
    except OSError:
        return zone.name
