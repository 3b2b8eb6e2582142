# SPDX-License-Identifier: Apache-2.0
"""How long each package was awake in each window of a live stream, from PACKAGE_TIME blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from qjoule.contract import PACKAGE_TIME
from qjoule.model.arrays import Machine
from qjoule.model.energy import I64

Records = npt.NDArray[np.void]
UNKNOWN = -1


class PackageTimes:
    """Holds the kernel side's records until their windows are complete.

    A tracer whose energy source cannot use them sends none.
    """

    def __init__(self, machine: Machine) -> None:
        self._packages = machine.packages
        self._records: Records = np.empty(0, PACKAGE_TIME)

    def add(self, records: Records) -> None:
        self._records = np.concatenate([self._records, records])

    def take(self, bounds_ns: I64) -> I64:
        """(windows, packages) ns with any CPU of the package busy; `UNKNOWN` without a record.

        A record belongs to the window that contains its middle. Windows and records have the same
        bounds unless a reading is missing; otherwise the share of time is taken. Windows must be
        requested in order.
        """
        records = self._records
        t0_ns, t1_ns = (records[name].astype(np.int64) for name in ("t0_ns", "t1_ns"))
        length_ns = t1_ns - t0_ns
        window = np.searchsorted(bounds_ns, t0_ns + length_ns // 2, "right") - 1
        slot_of = {package: slot for slot, package in enumerate(self._packages)}
        slot = np.array([slot_of.get(p, -1) for p in records["package"].tolist()], np.int64)
        windows = len(bounds_ns) - 1
        mine = (window >= 0) & (window < windows) & (slot >= 0) & (length_ns > 0)
        at = (window[mine], slot[mine])
        seen_ns = np.zeros((windows, len(self._packages)), np.int64)
        awake_ns = np.zeros_like(seen_ns)
        np.add.at(seen_ns, at, length_ns[mine])
        awake = np.minimum(records["awake_ns"][mine].astype(np.int64), length_ns[mine])
        np.add.at(awake_ns, at, np.maximum(awake, 0))
        share = awake_ns / np.maximum(seen_ns, 1)
        whole_ns = np.rint(share * np.diff(bounds_ns)[:, None]).astype(np.int64)
        self._records = records[window >= windows]
        return np.where(seen_ns > 0, whole_ns, UNKNOWN)
