# SPDX-License-Identifier: Apache-2.0
"""Losses that are counted outside the kernel, as rows of the table `loss`."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from qjoule.stream import rows


class OwnLosses:
    """Losses that are counted outside the kernel. `written`: by cause, as last written."""

    def __init__(self) -> None:
        self.written: dict[str, int] = {}

    def added_to(self, table: pa.Table, t_ns: int, counts: Mapping[str, int]) -> pa.Table:
        """`table` with a row of `loss` for each of the running counts that has grown."""
        for cause, count in counts.items():
            if count > self.written.get(cause, 0):
                self.written[cause] = count
                table = pa.concat_tables([table, rows.loss_row(t_ns, cause, count)])
        return table
