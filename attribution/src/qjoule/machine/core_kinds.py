# SPDX-License-Identifier: Apache-2.0
"""Which CPUs are of a smaller kind of core than others: hybrid processors of Intel, big.LITTLE.

Linux names Intel's small cores in the PMU `cpu_atom` (Documentation/admin-guide/perf/
intel-hybrid.rst), and shows how much a CPU can do in `cpu_capacity`, 1024 for the largest
(Documentation/devicetree/bindings/cpu/cpu-capacity.txt).
"""

from __future__ import annotations

import re
from pathlib import Path

from qjoule.machine.facts import parse_cpu_list, read_text

ROOT = Path("/")
_CPU = re.compile(r"cpu([0-9]{1,5})")
#: CPUs of one kind may differ by their highest frequency, as favoured cores do.
_SMALL = 0.8


def read_small_cpus(root: Path = ROOT) -> tuple[int, ...]:
    """The CPUs of smaller cores, ascending; empty if all are alike or the kernel does not say."""
    devices = root / "sys/devices"
    if (devices / "cpu_core").is_dir():
        try:
            return parse_cpu_list(read_text(devices / "cpu_atom/cpus"))
        except ValueError:
            return ()
    capacity = {}
    for folder in sorted((devices / "system/cpu").glob("cpu*")):
        match = _CPU.fullmatch(folder.name)
        text = read_text(folder / "cpu_capacity").strip()
        if match and re.fullmatch(r"[0-9]{1,5}", text):
            capacity[int(match[1])] = int(text)
    most = max(capacity.values(), default=0)
    return tuple(sorted(cpu for cpu, value in capacity.items() if value < _SMALL * most))
