# SPDX-License-Identifier: Apache-2.0
"""The CPU model, and how logical CPUs share cores and packages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.machine.files import read_table

ROOT = Path("/")
ARM_IMPLEMENTER = 0x41


@dataclass(frozen=True)
class Cpu:
    """One logical CPU that is online."""

    cpu: int
    package: int  #: physical_package_id, as in names of powercap zones
    core: int  #: unique within a package
    siblings: tuple[int, ...]  #: logical CPUs of the same core, itself among them


@dataclass(frozen=True)
class CpuInfo:
    """The machine's processor. A guest sees what its hypervisor shows."""

    vendor: str  #: GenuineIntel, AuthenticAMD, ARM, or empty
    family: int
    model: int
    stepping: int
    name: str
    hypervisor: bool
    cpus: tuple[Cpu, ...]

    @property
    def packages(self) -> dict[int, tuple[int, ...]]:
        """Logical CPUs of each package."""
        numbers = sorted({cpu.package for cpu in self.cpus})
        return {n: tuple(c.cpu for c in self.cpus if c.package == n) for n in numbers}

    @property
    def cores(self) -> int:
        return len({cpu.siblings for cpu in self.cpus})

    @cached_property
    def microarchitecture(self) -> str | None:
        """Key into ``watts_per_thread.csv``; None: not in ``microarchitectures.csv``."""
        for row in read_table("microarchitectures"):
            if (
                row["vendor"] == self.vendor
                and int(row["family"]) == self.family
                and int(row["model_first"]) <= self.model <= int(row["model_last"])
                and int(row["stepping_first"]) <= self.stepping <= int(row["stepping_last"])
            ):
                return row["microarchitecture"]
        return None


def read_cpu_info(root: Path = ROOT) -> CpuInfo:
    """Reads ``/proc/cpuinfo`` and ``/sys/devices/system/cpu`` under `root`.

    Raises `QjouleError` when there is no topology, as without /sys.
    """
    fields = _first_block(root / "proc/cpuinfo")
    if "CPU implementer" in fields:
        vendor = "ARM" if _number(fields["CPU implementer"]) == ARM_IMPLEMENTER else ""
        family = _number(fields.get("CPU architecture", ""))
        model = _number(fields.get("CPU part", ""))
        stepping = _number(fields.get("CPU revision", ""))
    else:
        vendor = fields.get("vendor_id", "")
        family = _number(fields.get("cpu family", ""))
        model = _number(fields.get("model", ""))
        stepping = _number(fields.get("stepping", ""))
    return CpuInfo(
        vendor=vendor,
        family=family,
        model=model,
        stepping=stepping,
        name=fields.get("model name", ""),
        hypervisor="hypervisor" in fields.get("flags", "").split(),
        cpus=_read_topology(root / "sys/devices/system/cpu"),
    )


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """CPUs of a kernel list such as ``0-3,8``; `ValueError` if it is no such list."""
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def _first_block(path: Path) -> dict[str, str]:
    """Fields of the first processor; empty where the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    block = text.strip().split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _number(text: str) -> int:
    """Decimal or 0x; -1 if unknown, which matches no table."""
    try:
        return int(text, 0)
    except ValueError:
        return -1


def _read_topology(folder: Path) -> tuple[Cpu, ...]:
    cpus: list[Cpu] = []
    for path in folder.glob("cpu[0-9]*"):
        match = re.fullmatch(r"cpu(\d+)", path.name)
        topology = path / "topology"
        if not match or not topology.is_dir():  # offline CPUs have no topology
            continue
        try:
            package = int((topology / "physical_package_id").read_text())
            core = int((topology / "core_id").read_text())
            siblings = parse_cpu_list((topology / "thread_siblings_list").read_text())
        except (OSError, ValueError) as error:
            raise QjouleError(f"{topology} cannot be understood ({error})") from error
        # Some Arm guests have no package number and report -1.
        cpus.append(Cpu(int(match[1]), max(package, 0), core, siblings))
    if not cpus:
        raise QjouleError(f"no CPU topology under {folder}; is /sys mounted?")
    return tuple(sorted(cpus, key=lambda cpu: cpu.cpu))
