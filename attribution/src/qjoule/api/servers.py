# SPDX-License-Identifier: Apache-2.0
"""The machine and its database servers.

The processor, its energy sources and its load; the servers that run here, and the registry of
server kinds; statements: tokens, shapes (without literals), and fingerprints of shapes.
"""

from qjoule.machine.facts import Cpu, CpuInfo, parse_cpu_list, read_cpu_info
from qjoule.machine.identity import Identity, this_machine
from qjoule.machine.load import Guard, Limits, LoadRose, load_reader
from qjoule.machine.power_table import estimate_curve
from qjoule.machine.sources import perf_pmu, powercap_tree
from qjoule.servers import registry
from qjoule.servers.attach_plan import PlannedServer
from qjoule.servers.decoding import LANGUAGES, fingerprint
from qjoule.servers.discovery import find_servers
from qjoule.servers.registry import flavours
from qjoule.servers.resolution import Probe
from qjoule.servers.types import Server
from qjoule.session.targets import plan_tracing
from qjoule.shapes.automaton import RAW_COMMENT, RAW_STAR, RAW_TAG
from qjoule.shapes.rules import Lexis
from qjoule.shapes.sql import Kind, Token, reduce_statement, tokens

__all__ = [
    "LANGUAGES",
    "RAW_COMMENT",
    "RAW_STAR",
    "RAW_TAG",
    "Cpu",
    "CpuInfo",
    "Guard",
    "Identity",
    "Kind",
    "Lexis",
    "Limits",
    "LoadRose",
    "PlannedServer",
    "Probe",
    "Server",
    "Token",
    "estimate_curve",
    "find_servers",
    "fingerprint",
    "flavours",
    "load_reader",
    "parse_cpu_list",
    "perf_pmu",
    "plan_tracing",
    "powercap_tree",
    "read_cpu_info",
    "reduce_statement",
    "registry",
    "this_machine",
    "tokens",
]
