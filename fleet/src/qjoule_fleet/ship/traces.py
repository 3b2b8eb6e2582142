# SPDX-License-Identifier: Apache-2.0
"""Ships raw traces that the user names.

    traces/host=db1/NAME/…              the trace's files; `meta.json` comes last
    manifests/host=db1/trace-NAME.jsonl

Traces are large and more detailed than rollups, so they are never shipped by default.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from qjoule.api import QjouleError
from qjoule.api.rollups import MANIFESTS, host_name
from qjoule.api.traces import Meta, read_meta
from qjoule_fleet.ship import local_parts
from qjoule_fleet.ship.destination import Destination, GaveUp, RetryPolicy
from qjoule_fleet.ship.shipper import Report, Trouble

_META = "meta.json"


def ship_traces(
    traces: Sequence[Path], to: Destination, retry_policy: RetryPolicy, report: Report
) -> None:
    """Ships traces and adds the result to `report`. Skips files that have been shipped before."""
    for trace in traces:
        try:
            _ship(trace, _complete(trace), to, retry_policy, report)
        except GaveUp as trouble:
            report.failed.append(Trouble(str(trace), str(trouble)))
            return
        except (QjouleError, OSError, ValueError) as error:
            report.refused.append(Trouble(str(trace), str(error)))


def _complete(trace: Path) -> Meta:
    meta = read_meta(trace)
    if not meta.complete:
        raise QjouleError("it is not complete: it is still being recorded, or was cut off")
    if meta.literals:
        raise QjouleError("it has the statements' literals, which stay on this machine")
    return meta


def _ship(
    trace: Path, meta: Meta, to: Destination, retry_policy: RetryPolicy, report: Report
) -> None:
    host, name = host_name(meta.host), host_name(trace.resolve().name)
    where = f"{MANIFESTS}/host={host}/trace-{name}.jsonl"
    content = retry_policy.call(lambda: to.read(where))
    entries, damaged = local_parts.parse(content or b"")
    report.damaged_lines += damaged
    files = [path for path in trace.rglob("*") if path.is_file() and not path.is_symlink()]
    for file in sorted(files, key=lambda path: (path.name == _META, path)):
        inside = file.relative_to(trace).as_posix()
        if any(part.startswith(".") for part in inside.split("/")):
            continue
        path, about = f"traces/host={host}/{name}/{inside}", file.stat()
        entry = entries.get(path)
        if entry and (entry.size, entry.mtime_ns) == (about.st_size, about.st_mtime_ns):
            report.there += 1
            continue
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        retry_policy.call(partial(to.put, path, file))
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        entries[path] = local_parts.Entry(path, about.st_size, digest, about.st_mtime_ns, now)
        report.shipped.append(path)
        report.bytes += about.st_size
        retry_policy.call(lambda: to.put(where, local_parts.text(entries.values())))
