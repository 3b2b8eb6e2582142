# SPDX-License-Identifier: Apache-2.0
"""A server in a recording of perf's."""

from __future__ import annotations

from dataclasses import dataclass

from qjoule.api.traces import Server


@dataclass(frozen=True)
class Imported:
    """A server. `tgids`: its known main processes; their children belong to it too."""

    id: int
    flavour: str
    tgids: frozenset[int]
    label: str
    version: str = ""
    pool: bool = False  #: sessions change threads

    @property
    def meta(self) -> Server:
        """As long as none of its probes was hit."""
        return Server(
            id=self.id,
            name=self.label,
            kind=self.flavour,
            version=self.version,
            attach_mode="none",
            reason="imported from perf: none of its probes was hit",
        )
