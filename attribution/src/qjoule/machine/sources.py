"""Which energy sources there are, seen from outside: what is there and may be read.

``qjoule-tracer --energy auto`` takes the decision, for only it can tell whether a counter moves
(a guest may show a PMU whose counters stay at zero).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from qjoule.machine.check import Check

ROOT = Path("/")
NO_RAPL = "modprobe intel_rapl_msr; in a virtual machine use --energy auto or estimated"


def powercap_tree(root: Path = ROOT) -> Check:
    return _tree("powercap", root / "sys/class/powercap", NO_RAPL)


def host_tree(folder: Path) -> Check:
    """A tree that a hypervisor fills for this guest."""
    return _tree("host energy", folder, "mount the tree that the hypervisor exports")


def perf_pmu(root: Path = ROOT) -> Check:
    folder = root / "sys/bus/event_source/devices/power"
    events = sorted(p.name for p in folder.glob("events/energy-*") if "." not in p.name)
    if not events:
        return Check("perf energy", False, f"no energy events in {folder}", NO_RAPL)
    ok = "energy-pkg" in events
    detail = ", ".join(events) + ("" if ok else ", none of a package")
    return Check("perf energy", ok, detail, "" if ok else NO_RAPL)


def _tree(name: str, folder: Path, missing: str) -> Check:
    """`intel-rapl:N` zones; `intel-rapl-mmio` shows the same packages again and is not counted."""
    zones = [p for p in folder.glob("intel-rapl:*") if re.fullmatch(r"intel-rapl:\d+", p.name)]
    counters = [zone / "energy_uj" for zone in zones if (zone / "energy_uj").exists()]
    if not counters:
        return Check(name, False, f"no intel-rapl zones under {folder}", missing)
    names = ", ".join(sorted(_name(counter.parent) for counter in counters))
    if not all(os.access(counter, os.R_OK, effective_ids=True) for counter in counters):
        return Check(name, False, f"{names}: not readable", "run it with sudo")
    return Check(name, True, names)


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text(encoding="utf-8", errors="replace").strip() or zone.name
    except OSError:
        return zone.name
