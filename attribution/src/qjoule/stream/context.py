# SPDX-License-Identifier: Apache-2.0
"""What whoever reads a stream is given beside it, for a recording, a capture or a live view.
Also the external power meter that is one of these things.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from qjoule.servers.decoding import OtherIds
from qjoule.trace.meta import EnergyInfo, Meta, MeterInfo

if TYPE_CHECKING:
    from qjoule.stream.following import Watching
    from qjoule.stream.named import Fingerprint
    from qjoule.stream.reported_calls import CallReports


@dataclass(frozen=True)
class StreamContext:
    """`meta` starts with what is not in the stream: host, kernel, servers.

    Attributes:
        client_tags: also read the tags that clients set for a connection.
        reports: source of the calls of applications; None: nobody reports any.
        meter: an external power meter, if there is one.
        watch: notices servers that are not traced.
        ids: finds the ids that other tools have for statements; None: they are not wanted.
    """

    fingerprint: Fingerprint
    meta: Meta = field(default_factory=Meta)
    client_tags: bool = False
    reports: CallReports | None = None
    meter: Metering | None = None
    watch: Watching | None = None
    ids: OtherIds | None = None


class Share(Enum):
    """Which tables a reader makes. `TIMES`: segments, their owners, energy and loss. `QUERIES`: the
    rest.

    What a query row says never depends on segments, nor the other way round. So two processes that
    read the same stream make the same tables as one does.
    """

    ALL = "all"
    TIMES = "times"
    QUERIES = "queries"

    @property
    def has_times(self) -> bool:
        return self is not Share.QUERIES

    @property
    def has_queries(self) -> bool:
        return self is not Share.TIMES


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
