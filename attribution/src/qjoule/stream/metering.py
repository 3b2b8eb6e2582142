# SPDX-License-Identifier: Apache-2.0
"""An external power meter whose readings go into the trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from qjoule.trace.meta import EnergyInfo, Meta, MeterInfo


class Reading(Protocol):
    """A reading of a meter, see `qjoule.session.meter_lines`."""

    @property
    def t_ns(self) -> int: ...

    @property
    def stamp_ns(self) -> int | None: ...

    @property
    def raw(self) -> int: ...


class Metering(Protocol):
    """A meter beside the stream: see `qjoule.session.meter`."""

    @property
    def info(self) -> MeterInfo | None:
        """The meter's entry in meta.json; None before the first reading."""

    @property
    def bad(self) -> int:
        """Number of its lines so far that were not readings."""

    def readings(self) -> Sequence[Reading]:
        """Its readings since the last call."""


def with_meter(meta: Meta, info: MeterInfo | None) -> Meta:
    """Adds the meter to `meta`. A machine without its own counters has only the meter's energy."""
    if info is None or meta.meter is not None:
        return meta
    energy = meta.energy
    if energy.source in ("", "none"):
        energy = EnergyInfo("meter", "measured", f"wall meter {info.name}")
    return replace(meta, meter=info, energy=energy)
