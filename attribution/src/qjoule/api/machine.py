# SPDX-License-Identifier: Apache-2.0
"""The processor, its energy sources and its load."""

from qjoule.machine.cpu import Cpu, CpuInfo, parse_cpu_list, read_cpu_info
from qjoule.machine.guard import Guard, Limits, LoadRose, look
from qjoule.machine.identity import Identity, this_machine
from qjoule.machine.power_table import estimate_curve
from qjoule.machine.sources import perf_pmu, powercap_tree

__all__ = [
    "Cpu",
    "CpuInfo",
    "Guard",
    "Identity",
    "Limits",
    "LoadRose",
    "estimate_curve",
    "look",
    "parse_cpu_list",
    "perf_pmu",
    "powercap_tree",
    "read_cpu_info",
    "this_machine",
]
