# SPDX-License-Identifier: Apache-2.0
"""Checks the numbers in the counter study's text against each other.

R. Panda et al., Performance characterization of modern databases on out-of-order CPUs, 2015. Cycles
per instruction add up by the shares of instructions in user mode and in the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from published.tables import Misprint, number, table

STUDY = "counters-pca"


def kernel_share_percent() -> float:
    """The share of the kernel's instructions that the three printed IPC values imply."""
    said = table(STUDY, "published.csv")
    ipc = said[said["quantity"].str.startswith("instructions per cycle")]["least"].to_numpy()
    overall, user, kernel = 1 / ipc
    return float(100 * (overall - user) / (kernel - user))


def misprints() -> Iterator[Misprint]:
    """Numbers in the text that contradict each other."""
    yield Misprint(
        "section IV.A",
        "share of the kernel's instructions",
        "15 to 30 %",
        f"{number(kernel_share_percent())} % by the three IPC values",
    )
    yield Misprint(
        "section IV.C",
        "branch mispredictions",
        "over 6 % (all), most MongoDB's with over 5.5 %",
        "an average above the greatest",
    )
    yield Misprint(
        "section III",
        "L1 caches of the Xeon E5405",
        "64 KB for instructions and 64 KB for data",
        "32 KB each (Intel's specification)",
    )
