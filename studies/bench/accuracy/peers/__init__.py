# SPDX-License-Identifier: Apache-2.0
"""Other attribution methods, each implemented from its published formula.

They see the same recording as qjoule, and the power at rest that their own calibration would have
measured. Some methods sample less often than the recording does. They are given the finer windows
as well, in their favour: their shares then follow what ran at each moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from studies.bench.accuracy.peers import cycles, energat, smartwatts, time_share
from studies.bench.accuracy.peers.observed import Observed
from studies.bench.accuracy.recording import F64


@dataclass(frozen=True)
class Peer:
    """`estimate` gives nanojoules (g,) per group, or None where the recording lacks its inputs.

    `told_rest`: it is given the power at rest that a calibration run measured.
    """

    name: str
    by_counters: bool
    about: str
    estimate: Callable[[Observed], F64 | None]
    told_rest: bool = True


#: "+idle": as published, power at rest is charged too; the other figure has it subtracted.
PEERS = (
    Peer("kepler", False, "active part of the energy by CPU time", time_share.kepler, False),
    Peer("scaphandre+idle", False, "all energy by CPU time", time_share.scaphandre, False),
    Peer("cpu_time-least", False, "above the least power seen", time_share.above_least, False),
    Peer("cpu_time", False, "energy above idle by CPU time", time_share.above_idle),
    Peer("smt_time", False, "the same, time beside a sibling weighs 0.55", time_share.smt_time),
    Peer("energat", False, "energy above idle by CPU time to the 0.3", energat.as_published),
    Peer("energat=1", False, "the same, shares made to add up to 1", energat.normalised),
    Peer("cycles+idle", True, "all energy by cycles", cycles.all_energy, False),
    Peer("cycles", True, "energy above idle by cycles", cycles.above_idle),
    Peer("smt_cycles+idle", True, "DEEP-mon: all energy by SMT-weighted cycles", cycles.deep_mon),
    Peer("smt_cycles", True, "HaPPy: energy above idle by SMT-weighted cycles", cycles.happy),
    Peer("smartwatts", True, "energy above idle by a regression per frequency", smartwatts.shares),
)
