# SPDX-License-Identifier: Apache-2.0
"""Identifies a machine, and lists how it differs from the one that a calibration was made on."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from qjoule.machine.facts import CpuInfo, read_cpu_info, read_text
from qjoule.trace.meta import Meta

ROOT = Path("/")

_MACHINE_KEY = b"qjoule.calibration"


@dataclass(frozen=True)
class Package:
    """A package, as the kernel shows it."""

    package: int
    cores: int
    threads: int


@dataclass(frozen=True)
class Frequency:
    """cpufreq's limits over all CPUs, in kHz, and whether boost may exceed them."""

    min_khz: int
    max_khz: int
    boost: str = ""  #: on, off; empty: not known


@dataclass(frozen=True)
class Identity:
    """The properties of a machine that affect its power. Empty, or None: not known."""

    host: str = ""
    machine: str = ""  #: keyed hash of the machine id
    cpu: str = ""  #: model name
    signature: str = ""  #: vendor, family, model, stepping
    microcode: str = ""
    packages: tuple[Package, ...] = ()
    governor: str = ""
    frequency: Frequency | None = None
    kernel: str = ""  #: release


def this_machine(root: Path = ROOT) -> Identity:
    """This machine, from /proc, /sys and /etc under `root`.

    Raises `QjouleError` if there is no CPU topology.
    """
    info = read_cpu_info(root)
    return Identity(
        host=platform.node(),
        machine=machine_hash(root, _MACHINE_KEY),
        cpu=info.name,
        signature=f"{info.vendor} {info.family}-{info.model}-{info.stepping}",
        microcode=_microcode(root),
        packages=_packages((cpu.package, (cpu.package, *cpu.siblings)) for cpu in info.cpus),
        governor=",".join(_each_cpu(root, info, "scaling_governor")),
        frequency=_frequency(root, info),
        kernel=read_text(root / "proc/sys/kernel/osrelease"),
    )


def of_trace(meta: Meta) -> Identity:
    """The machine of a trace, as far as its meta.json describes it."""
    return Identity(
        host=meta.host,
        cpu=meta.cpu,
        packages=_packages((cpu.package, (cpu.package, cpu.sibling)) for cpu in meta.cpus),
        kernel=meta.kernel,
    )


def other_machine(ours: Identity, theirs: Identity) -> list[str]:
    """Lists what makes `theirs` another machine than the calibrated one (`ours`), a phrase each."""
    differences = []
    for part in ("cpu", "signature"):
        a, b = getattr(ours, part), getattr(theirs, part)
        if a and b and a != b:
            differences.append(f"it is of another CPU ({a}, not {b})")
            break
    if ours.packages and theirs.packages and ours.packages != theirs.packages:
        differences.append(
            f"it is of another topology ({_cores(ours.packages)}, not {_cores(theirs.packages)})"
        )
    return differences


def changes(ours: Identity, theirs: Identity) -> list[str]:
    """Changes since the calibration (`ours`) that may affect power: one phrase each."""
    differences = []
    if ours.machine and theirs.machine:
        if ours.machine != theirs.machine:
            differences.append(f"of another host ({ours.host or 'unnamed'})")
    elif ours.host and theirs.host and ours.host != theirs.host:
        differences.append(f"of another host ({ours.host})")
    if ours.governor and theirs.governor and ours.governor != theirs.governor:
        differences.append(f"with governor {ours.governor}, not {theirs.governor}")
    if ours.frequency and theirs.frequency and ours.frequency != theirs.frequency:
        differences.append(f"at {_limits(ours.frequency)}, not {_limits(theirs.frequency)}")
    if ours.microcode and theirs.microcode and ours.microcode != theirs.microcode:
        differences.append(f"with microcode {ours.microcode}, not {theirs.microcode}")
    a, b = _major(ours.kernel), _major(theirs.kernel)
    if a and b and a != b:
        differences.append(f"with kernel {a}, not {b}")
    return differences


def _packages(cpus: Iterable[tuple[int, tuple[int, ...]]]) -> tuple[Package, ...]:
    """Counts cores and threads by package. `cpus`: (package, a key shared by a core's CPUs)."""
    pairs = list(cpus)
    threads = Counter(package for package, _ in pairs)
    cores = Counter(package for package, _ in set(pairs))
    return tuple(Package(package, cores[package], threads[package]) for package in sorted(threads))


def _cores(packages: tuple[Package, ...]) -> str:
    counts = Counter((package.cores, package.threads) for package in packages)
    return " + ".join(
        f"{count} x {cores} cores {threads} threads" for (cores, threads), count in counts.items()
    )


def _limits(frequency: Frequency) -> str:
    boost = f", boost {frequency.boost}" if frequency.boost else ""
    return f"{frequency.min_khz / 1e6:.2f} to {frequency.max_khz / 1e6:.2f} GHz{boost}"


def _major(kernel: str) -> str:
    return kernel.partition(".")[0]


def machine_hash(root: Path, key: bytes) -> str:
    """32 hex digits that identify this machine; empty if it has no machine id.

    machine-id(5): the id is confidential, so only a hash of it, with another key for each purpose,
    may leave the machine.
    """
    machine_id = read_text(root / "etc/machine-id")
    if not re.fullmatch(r"[0-9a-f]{32}", machine_id):
        return ""
    import hmac  # noqa: PLC0415 (it loads OpenSSL, 4 MB)

    return hmac.new(bytes.fromhex(machine_id), key, "sha256").hexdigest()[:32]


def _microcode(root: Path) -> str:
    for line in read_text(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "microcode":
            return value.strip()
    return ""


def _frequency(root: Path, info: CpuInfo) -> Frequency | None:
    try:
        least = [int(text) for text in _each_cpu(root, info, "scaling_min_freq")]
        most = [int(text) for text in _each_cpu(root, info, "scaling_max_freq")]
    except ValueError:
        return None
    if not (least and most):
        return None
    folder = root / "sys/devices/system/cpu"
    no_turbo = read_text(folder / "intel_pstate/no_turbo")
    boost = {"0": "on", "1": "off"}.get(no_turbo) or {"1": "on", "0": "off"}.get(
        read_text(folder / "cpufreq/boost"), ""
    )
    return Frequency(min(least), max(most), boost)


def _each_cpu(root: Path, info: CpuInfo, file: str) -> list[str]:
    """The distinct texts of cpufreq's `file` over all CPUs."""
    folder = root / "sys/devices/system/cpu"
    texts = {read_text(folder / f"cpu{cpu.cpu}/cpufreq/{file}") for cpu in info.cpus}
    return sorted(texts - {""})
