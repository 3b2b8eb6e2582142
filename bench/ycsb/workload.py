# SPDX-License-Identifier: Apache-2.0
"""Workload A of YCSB: half reads, half updates of a field, zipfian; ten fields of 100 bytes.

Cooper et al., Benchmarking Cloud Serving Systems with YCSB, SoCC 2010; workloads/workloada of
github.com/brianfrankcooper/YCSB. Fields and their lengths are YCSB's defaults.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from qjoule.errors import QjouleError

RECORDS = 10_000  #: small enough for memory, so CPU is the limit and not the disk
#: Several for each CPU, so that none idles while a connection waits for its turn.
CONNECTIONS = 4 * (os.cpu_count() or 1)
PROPERTIES = {
    "recordcount": RECORDS,
    "operationcount": 2_000_000_000,  # the run is ended before this
    "readallfields": "true",
    "readproportion": 0.5,
    "updateproportion": 0.5,
    "scanproportion": 0,
    "insertproportion": 0,
    "requestdistribution": "zipfian",
}
#: A line of YCSB's report: operations of each kind since the beginning, in alphabetical order.
LINE = re.compile(rb"^(READ|UPDATE|\w+_ERROR) *- .*?\bCount: (\d+)")


def reports() -> Callable[[bytes, float], float | None]:
    """Reads the reports of one run; see `bench.overhead.generator.Reports`."""
    reads = last = 0

    def read(line: bytes, _seconds: float) -> float | None:
        nonlocal reads, last
        found = LINE.match(line)
        if not found:
            return None
        if found[1].endswith(b"_ERROR"):
            raise QjouleError(f"YCSB's operations fail: {line.decode(errors='replace').strip()}")
        if found[1] == b"READ":
            reads = int(found[2])
            return None
        total = reads + int(found[2])
        done, last = total - last, total
        return float(done)

    return read
