# SPDX-License-Identifier: Apache-2.0
"""Names of a dataset's parts: paths, metadata, versions. The agents' stores have the same layout.

    rollups/date=2026-11-23/host=db1/hour-19-0123456789abcdef.parquet
    hours/, tags/                                                      the same below
    shapes/host=db1/shapes-0123456789abcdef.parquet
    servers/host=db1/servers-0123456789abcdef.parquet
    manifests/date=2026-11-23/host=db1/0123456789abcdef.jsonl          of that day's parts
    manifests/host=db1/0123456789abcdef.jsonl                          of all others

Dates and hours are UTC. A part is identified by its table, host id and hour; its metadata repeat
what its path says, so that a reader notices a part that lies elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from qjoule import __version__

#: The version that is written. Another minor version only adds columns.
SCHEMA_VERSION = "2.2"
#: Major versions that can be read. A part of version 1 has no host id: it is `""`.
READABLE = (1, 2)
#: The dataset of this machine's agent, unless it is configured otherwise.
OWN_STORE = "/var/lib/qjoule/agent"
#: A part for each hour: rows by minute; sums of the hour; sums of the hour by tag.
ROLLUPS, HOURS, TAGS = "rollups", "hours", "tags"
HOURLY = (ROLLUPS, HOURS, TAGS)
#: A part for each hour: queries that were drawn at random. They stay on their host: they say
#: who sent a query.
SAMPLES = "samples"
#: Tables that change slowly: one part per host.
SLOW = ("shapes", "servers")
TABLES = (*HOURLY, *SLOW)
MANIFESTS = "manifests"
HOUR_S = 3600

#: Keys of a Parquet file's metadata.
VERSION_KEY, TABLE_KEY, HOST_KEY = "qjoule.rollup", "qjoule.table", "qjoule.host"
HOST_ID_KEY, HOUR_KEY, WRITER_KEY = "qjoule.host_id", "qjoule.hour", "qjoule.version"
#: "1": the hour is over, and the part does not change any more.
CLOSED_KEY = "qjoule.closed"

_HOST_LENGTH = 64
_PLAIN = re.compile(r"[^A-Za-z0-9._-]")
_ID = r"(?P<host_id>[0-9a-f]{16})"
_HOST = rf"host=(?P<host>[A-Za-z0-9._-]{{1,{_HOST_LENGTH}}})"
_HOURLY_PATH = re.compile(
    rf"(?P<table>{'|'.join((*HOURLY, SAMPLES))})/date=(?P<date>\d{{4}}-\d\d-\d\d)/{_HOST}"
    rf"/hour-(?P<hour>\d\d)(-{_ID})?\.parquet",
    re.ASCII,
)
_SLOW_PATH = re.compile(
    rf"(?P<table>{'|'.join(SLOW)})/{_HOST}/(?P=table)(-{_ID})?\.parquet", re.ASCII
)


@dataclass(frozen=True, order=True)
class Part:
    """One Parquet file. `hour_s`: its hour's start (Unix time); None for `SLOW` tables.

    `host_id`: 16 hex digits; empty if the part is of schema 1.
    """

    table: str
    host: str
    host_id: str
    hour_s: int | None = None

    @property
    def identity(self) -> tuple[str, str, int | None]:
        """Unique in a dataset. A part without a host id has the host's name instead."""
        return self.table, self.host_id or self.host, self.hour_s

    @property
    def path(self) -> str:
        """Relative to the dataset, with `/`."""
        end = f"-{self.host_id}.parquet" if self.host_id else ".parquet"
        if self.hour_s is None:
            return f"{self.table}/host={self.host}/{self.table}{end}"
        at = datetime.fromtimestamp(self.hour_s, UTC)
        return f"{self.table}/date={at:%Y-%m-%d}/host={self.host}/hour-{at:%H}{end}"

    def metadata(self, *, closed: bool = False) -> dict[str, str]:
        """The file's key-value metadata."""
        metadata = {
            VERSION_KEY: SCHEMA_VERSION,
            TABLE_KEY: self.table,
            HOST_KEY: self.host,
            HOST_ID_KEY: self.host_id,
            WRITER_KEY: __version__,
        }
        if self.hour_s is not None:
            metadata[HOUR_KEY] = hour_text(self.hour_s)
        if closed:
            metadata[CLOSED_KEY] = "1"
        return metadata

    def contradicts(self, metadata: Mapping[str, str]) -> str:
        """Returns how metadata contradict the path, or "". Schema 1 has none of these keys."""
        for key, value in self.metadata().items():
            if key not in (VERSION_KEY, WRITER_KEY) and key in metadata and metadata[key] != value:
                return f"{key} is {metadata[key]!r} in the part, and {value!r} by its path"
        return ""


def part_at(path: str) -> Part | None:
    """The part that a path, relative to the dataset, names; None if it names none."""
    hourly = _HOURLY_PATH.fullmatch(path)
    match = hourly or _SLOW_PATH.fullmatch(path)
    if match is None or not plain(match["host"]):
        return None
    hour_s = None
    if hourly is not None:
        try:
            # `strptime` would take most of the time of a scan.
            hour = datetime.fromisoformat(f"{hourly['date']}T{hourly['hour']}:00:00+00:00")
        except ValueError:  # there is no such date
            return None
        hour_s = int(hour.timestamp())
    return Part(match["table"], match["host"], match["host_id"] or "", hour_s)


def manifest_path(part: Part) -> str:
    """The manifest that has this part, relative to the dataset: what its host has shipped."""
    day: tuple[str, ...] = ()
    if part.hour_s is not None:
        day = (f"date={datetime.fromtimestamp(part.hour_s, UTC):%Y-%m-%d}",)
    return str(PurePosixPath(MANIFESTS, *day, f"host={part.host}", f"{part.host_id}.jsonl"))


def hour_of(time_s: float) -> int:
    """The start of the hour, in UTC, that a Unix time is in."""
    return int(time_s // HOUR_S) * HOUR_S


def hour_text(hour_s: int) -> str:
    return f"{datetime.fromtimestamp(hour_s, UTC):%Y-%m-%dT%H:00:00Z}"


def host_name(name: str) -> str:
    """Makes a host's name safe in paths: it cannot leave its directory."""
    return _PLAIN.sub("_", name)[:_HOST_LENGTH] or "unknown"


def plain(name: str) -> bool:
    return bool(name) and host_name(name) == name


def decoded(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """A Parquet file's key-value metadata as texts; what is not UTF-8 is replaced."""
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in (metadata or {}).items()
    }


def unreadable(version: str | None) -> str:
    """Returns why this qjoule cannot read a part of this schema version, or "" if it can."""
    if version is None:
        return f"it has no {VERSION_KEY}: it is not a part of a qjoule dataset"
    major = re.fullmatch(r"(\d{1,6})(\.\d{1,6})?", version, re.ASCII)
    if major is None:
        return f"its {VERSION_KEY} is {version[:32]!r}: not a version"
    if int(major[1]) not in READABLE:
        return (
            f"its schema is version {version}, and this qjoule reads "
            f"{' and '.join(map(str, READABLE))}: use a newer qjoule"
        )
    return ""
