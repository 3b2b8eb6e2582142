# SPDX-License-Identifier: Apache-2.0
"""Names of a fleet's hosts: two machines that have one name are told apart by their ids."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from qjoule.api.rollups import Part

#: Hex digits of an id that are shown; as many more as it takes to tell hosts apart.
_SHOWN = 6


@dataclass
class Hosts:
    """The hosts whose parts a listing named."""

    _ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, part: Part) -> None:
        self._ids[part.host].add(part.host_id)

    def key(self, part: Part) -> str:
        """The same for all parts of one machine: its id.

        An agent of schema 1 wrote none. Its parts belong to the machine that has the name now, if
        there is just one.
        """
        known = self._ids[part.host] - {""}
        if part.host_id or len(known) != 1:
            return part.host_id or f"={part.host}"
        return next(iter(known))

    def label(self, part: Part) -> str:
        """The name; with the beginning of the id where several machines have the name."""
        known = self._ids[part.host] - {""}
        if len(known) < 2:
            return part.host
        if not part.host_id:
            return f"{part.host}#?"
        digits = _SHOWN
        while len({one[:digits] for one in known}) < len(known):
            digits += 1
        return f"{part.host}#{part.host_id[:digits]}"

    def labels(self) -> set[str]:
        return {self.label(Part("", host, one)) for host, ids in self._ids.items() for one in ids}

    def of_slot(self, writer: str) -> str:
        """The label of a host id, or of `=` and a name."""
        if writer.startswith("="):
            return self.label(Part("", writer[1:], ""))
        named = (host for host, ids in self._ids.items() if writer in ids)
        return self.label(Part("", next(named, writer), writer))
