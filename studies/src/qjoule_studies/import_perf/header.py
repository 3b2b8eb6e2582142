# SPDX-License-Identifier: Apache-2.0
"""The facts about host and recording in the header of `perf script --header -I`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qjoule.api import QjouleError
from qjoule.api.servers import Cpu as LogicalCpu
from qjoule.api.servers import CpuInfo, parse_cpu_list
from qjoule.api.traces import Cpu

_CPU = re.compile(r"CPU ([0-9]{1,4}): Core ID (-?[0-9]{1,6}),.*?Socket ID (-?[0-9]{1,5})$")
_TOGETHER = re.compile(r"= ([0-9]{1,12})\.([0-9]{6}) \(TOD\) = ([0-9]{1,10})\.([0-9]{9}) \(mono")


@dataclass(frozen=True)
class Header:
    """Fields are empty or None if the header lacks them. `cpus` are the traced machine's."""

    host: str = ""
    kernel: str = ""
    cpu: str = ""
    cpuid: str = ""  #: vendor,family,model,stepping
    version: str = ""  #: of perf
    realtime_offset_ns: int | None = None
    cpus: tuple[Cpu, ...] = ()

    def processor(self) -> CpuInfo | None:
        """For the table of published power curves."""
        vendor, *numbers = self.cpuid.split(",")
        if len(numbers) != 3 or not all(n.strip().isdigit() for n in numbers) or not self.cpus:
            return None
        family, model, stepping = map(int, numbers)
        siblings = {
            sibling: tuple(cpu.cpu for cpu in self.cpus if cpu.sibling == sibling)
            for sibling in {cpu.sibling for cpu in self.cpus}
        }
        cpus = tuple(
            LogicalCpu(cpu.cpu, cpu.package, cpu.core, siblings[cpu.sibling]) for cpu in self.cpus
        )
        return CpuInfo(vendor, family, model, stepping, self.cpu, False, cpus)


def parse_header(lines: list[str], name: str) -> Header:
    """Raises `QjouleError` if the times come from another clock than the trace's."""
    facts: dict[str, str] = {}
    siblings: list[tuple[int, ...]] = []
    places: dict[int, tuple[int, int]] = {}
    for line in lines:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
        if key.strip() == "sibling threads":
            siblings += _cpu_list(value)
        if match := _CPU.match(line):
            places[int(match[1])] = (int(match[2]), max(int(match[3]), 0))
    is_monotonic = facts.get("clockid", "").startswith("monotonic ")
    if "perf version" in facts and not is_monotonic:
        raise QjouleError(
            f"{name} has times of another clock: record with '-k CLOCK_MONOTONIC', as "
            "'qjoule import perf --print-commands' shows"
        )
    together = _TOGETHER.search(facts.get("reference time", ""))
    lowest = {cpu: min(group) for group in siblings for cpu in group if group}
    return Header(
        host=facts.get("hostname", ""),
        kernel=facts.get("os release", ""),
        cpu=facts.get("cpudesc", ""),
        cpuid=facts.get("cpuid", ""),
        version=facts.get("perf version", ""),
        realtime_offset_ns=_offset_ns(together) if together else None,
        cpus=tuple(
            Cpu(cpu, package, core, lowest.get(cpu, cpu))
            for cpu, (core, package) in sorted(places.items())
        ),
    )


def _offset_ns(match: re.Match[str]) -> int:
    seconds, micros, mono_s, mono_ns = map(int, match.groups())
    return (seconds - mono_s) * 1_000_000_000 + micros * 1000 - mono_ns


def _cpu_list(text: str) -> list[tuple[int, ...]]:
    """CPUs that share a core; empty if the list is invalid or absurdly long."""
    if len(text) > 64:
        return []
    try:
        group = parse_cpu_list(text)
    except ValueError:
        return []
    return [group] if 0 < len(group) <= 64 else []
