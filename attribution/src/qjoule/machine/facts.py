# SPDX-License-Identifier: Apache-2.0
"""Reads facts about the machine from /proc and /sys, and this package's CSV tables.

The facts are the CPU model, its brand string in comparable words, how logical CPUs share cores and
packages, and the hardware around the CPUs (`HostHardware`).
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from qjoule.errors import QjouleError

ROOT = Path("/")

#: `sys_vendor` of DMI where the machine is virtual, unless the product is a `.metal` one.
_VIRTUAL = (
    "Amazon EC2",
    "Google",
    "QEMU",
    "Microsoft Corporation",
    "VMware, Inc.",
    "Xen",
    "OpenStack Foundation",
    "DigitalOcean",
    "Hetzner",
    "Alibaba Cloud",
)
_INSTANCE = re.compile(r"[a-z0-9-]{1,16}\.[a-z0-9]{1,16}")
_KIB = 1024
_NO_WORDS = re.compile(r"\((?:r|tm|c)\)|[®™,;]", re.IGNORECASE)
_LEFT_OUT = frozenset({"cpu", "processor", "intel", "amd", "genuine"})
_CLOCK = re.compile(r"@\s*([0-9]{1,2}(?:\.[0-9]{1,3})?)\s*ghz", re.IGNORECASE)
_IN_PARENTHESES = re.compile(r"\(([^()]*)\)")
_VERSION = re.compile(r"v[0-9]")
#: Schöne et al., "Energy Efficiency Aspects of the AMD Zen 2 Architecture" (CLUSTER 2021): of two
#: EPYC 7502's AC power, 36 to 46 W are not in RAPL under arithmetic, and 113 to 136 W under
#: memory-bound work.
NO_DRAM_ON_AMD = (
    "RAPL of AMD does not contain memory, so what it draws is in no row: some 80 W under "
    "memory-bound work on two EPYC 7502 (arXiv:2108.00808)"
)
MEMORY_BY_METER = "a wall meter measures memory too (record --meter)"
_CPU_LIST = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*")
_MOST_CPUS = 65_536
_BYTES = 256  #: longest part of a brand string that is read; CPUID gives 48


@dataclass(frozen=True)
class Check:
    """One line of `doctor`. `ok`: None if unknown. `fix`: how to repair the machine."""

    name: str
    ok: bool | None
    detail: str
    fix: str = ""


@cache
def read_table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of ``machine/NAME.csv`` by column name. Its `#` lines are its sources and licences."""
    text = Path(__file__).with_name(f"{name}.csv").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return tuple(csv.DictReader(lines))


def read_text(path: Path) -> str:
    """The file's text without surrounding space; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class HostHardware:
    """`memory_gb`: in units of 2^30 bytes; None: unknown. `instance`: the cloud's instance type."""

    memory_gb: float | None = None
    instance: str = ""
    virtual: bool = False


def read_host_hardware(root: Path = ROOT) -> HostHardware:
    """Reads /proc and /sys under `root`."""
    vendor = read_text(root / "sys/class/dmi/id/sys_vendor")
    product = read_text(root / "sys/class/dmi/id/product_name")
    instance = product if vendor == "Amazon EC2" and _INSTANCE.fullmatch(product) else ""
    return HostHardware(
        _memory_gb(read_text(root / "proc/meminfo")),
        instance,
        vendor.startswith(_VIRTUAL) and not instance.endswith(".metal"),
    )


def _memory_gb(text: str) -> float | None:
    match = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB$", text, re.MULTILINE)
    return int(match[1]) / _KIB**2 if match and int(match[1]) else None


def brand_words(name: str) -> tuple[str, ...]:
    """A brand's words in lower case, without marks and words that name no model."""
    plain = _NO_WORDS.sub(" ", name[:_BYTES]).lower()
    return tuple(word for word in plain.split() if word not in _LEFT_OUT)


def names_model(brand: tuple[str, ...], model: tuple[str, ...]) -> bool:
    """Whether a brand's words contain a model's words in a row, with no version after them.

    `Xeon E5-2670 v2` is another CPU than `Xeon E5-2670`.
    """
    for begin in range(len(brand) - len(model) + 1):
        end = begin + len(model)
        if brand[begin:end] == model:
            return not (end < len(brand) and _VERSION.fullmatch(brand[end]))
    return False


def is_amd(name: str) -> bool:
    """Whether a CPU with this brand is of AMD, or of Hygon, which has its design."""
    return not {"amd", "hygon"}.isdisjoint(_NO_WORDS.sub(" ", name[:_BYTES]).lower().split())


def base_ghz(name: str) -> float | None:
    """The base clock that the brand ends with (`@ 2.50GHz`); None: it has none."""
    match = _CLOCK.search(name[:_BYTES])
    value = float(match[1]) if match else 0.0
    return value or None


def in_parentheses(name: str) -> tuple[str, ...]:
    """The phrases in parentheses that a hypervisor shows instead of a model, in lower case:
    `skylake` and `ibrs` of `Intel Xeon Processor (Skylake, IBRS)`."""
    phrases = (part for text in _IN_PARENTHESES.findall(name[:_BYTES]) for part in text.split(","))
    return tuple(phrase.strip().lower() for phrase in phrases if phrase.strip())


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
    """CPUs of a kernel list such as ``0-3,8``, ascending; `ValueError` if it is no such list."""
    text = text.strip()
    if text and not _CPU_LIST.fullmatch(text):
        raise ValueError("it is no list of CPUs")
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if int(last or first) >= _MOST_CPUS:
            raise ValueError("no machine has so many CPUs")
        cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


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
