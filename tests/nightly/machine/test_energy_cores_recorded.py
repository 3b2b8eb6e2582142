# SPDX-License-Identifier: Apache-2.0
"""`qjoule record` beside counters of single cores, which are events of a real PMU: the CPU's clock,
of which each count is called an energy.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from energy_probe.probe import open_folder, pmu, write
from qjoule.machine.facts import parse_cpu_list
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import attribute, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

SECONDS = 8
CPU_CLOCK = "event=0x00"  # PERF_COUNT_SW_CPU_CLOCK: always counting, in ns
CPUS = parse_cpu_list(Path("/sys/devices/system/cpu/online").read_text())


@pytest.mark.parametrize("package_j", [1e-6, 1e-10])
def test_cores_are_read_once_a_second_and_used_if_the_package_draws_more(
    postgres: DatabaseServer, tmp_path: Path, package_j: float
) -> None:
    """Each core draws 0.23 W, the package 1000 W or 0.1 W."""
    directory = tmp_path / "cores.qjoule"
    with open_folder() as folder:
        power = pmu(folder / "power", "0", {"energy-pkg": CPU_CLOCK})
        write(power / "events" / "energy-pkg.scale", f"{package_j}\n")
        pmu(folder / "power_core", ",".join(map(str, CPUS)), {"energy-core": CPU_CLOCK})
        with recording(directory, "--pid", str(postgres.pid), "--energy", f"perf:{power}"):
            time.sleep(SECONDS)
    energy = Trace(directory).table("energy").to_pandas()
    cores = energy[energy["domain"] == "one_core"]
    assert set(cores["die"]) == set(CPUS)
    package_ns = energy[energy["domain"] == "package"]["t_ns"].to_numpy()
    for _, core in cores.groupby("die"):
        assert SECONDS - 1 <= len(core) <= SECONDS + 3
        # Cores are read after the package, and anything can run in between.
        due_ns = package_ns[np.searchsorted(package_ns, core["t_ns"], side="right") - 1]
        assert (np.diff(due_ns)[:-1] >= 10**9).all()
        assert not core["status"].any()
    assert len(package_ns) > 10 * len(cores) // len(CPUS)
    result = attribute(directory)
    assert result["energy_source"]["domains"] == ["package"]
    reason = "counters of single cores are not used: cores of package 0 show more than the package"
    refused = any(note.startswith(reason) for note in result["model"]["notes"])
    used = result["energy_source"].get("cores") == "measured per core"
    assert (used, refused) == ((True, False) if package_j > 1e-9 else (False, True))
