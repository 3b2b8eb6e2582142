# SPDX-License-Identifier: Apache-2.0
"""Facts about the machine, as `doctor` shows them, and the small files that they are read from: of
/proc and /sys, and the CSV tables of this package. `HostHardware`: what lies around the CPUs.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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


@dataclass(frozen=True)
class Check:
    """`ok` is None if it is unknown. `fix` is how to repair what is not ok."""

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
    """`memory_gb` in 2^30 bytes, None if unknown; `instance` as its cloud calls its type."""

    memory_gb: float | None = None
    instance: str = ""
    virtual: bool = False


def read_host_hardware(root: Path = ROOT) -> HostHardware:
    """This machine's, from /proc and /sys under `root`."""
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
