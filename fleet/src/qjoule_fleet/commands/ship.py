# SPDX-License-Identifier: Apache-2.0
"""`qjoule ship`: copies closed rollups from an agent's store to a fleet's dataset."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from qjoule.api import UsageError
from qjoule.api.command import say
from qjoule.api.rollups import OWN_STORE
from qjoule_fleet.ship.destination import Destination, RetryPolicy, destination
from qjoule_fleet.ship.shipper import Report, Shipper, Trouble
from qjoule_fleet.ship.traces import ship_traces

SCHEMA = "qjoule.ship/1"
#: Problems that are printed one by one; further ones are counted.
NAMED = 20
#: Maximum pause after failed passes.
LONGEST_PAUSE_S = 900.0


@click.command(
    short_help="Copy closed rollups to where a fleet's rollups are.",
    epilog="""\b
URL is a directory, or what fsspec or pyarrow know: s3://BUCKET/PATH, sftp://…
The store is only read. The destination's manifests say what was shipped.

\b
Examples:
  qjoule ship /mnt/fleet
  qjoule ship s3://fleet/joules --follow
  qjoule ship s3://fleet/joules --option endpoint_url=http://minio:9000
  qjoule ship /mnt/fleet --json
""",
)
@click.argument("url")
@click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    default=OWN_STORE,
    show_default=True,
    metavar="DIR",
    help="The agent's store.",
)
@click.option("--once/--follow", default=True, help="One pass (default), or one after the other.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(1, 86_400),
    default=60.0,
    show_default=True,
    metavar="S",
    help="With --follow: seconds between two passes.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the filesystem, as fsspec names it. Repeatable.",
)
@click.option(
    "--waiting",
    "waiting_mb",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    show_default=True,
    metavar="MB",
    help="If more than this waits, the oldest parts are left out of a pass.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.1, 3600),
    default=120.0,
    show_default=True,
    metavar="S",
    help="How long one file may take.",
)
@click.option(
    "--traces",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    multiple=True,
    metavar="DIR",
    help="Ship this trace too. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each pass.")
def command(
    *,
    url: str,
    store: Path,
    once: bool,
    every_s: float,
    options: tuple[str, ...],
    waiting_mb: int,
    timeout_s: float,
    traces: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Copy what is closed in an agent's store to a dataset that many hosts share.

    It may be stopped at any moment and goes on where it was. Nothing is removed from the store.
    """
    to = destination(url, _options(options))
    retry_policy = RetryPolicy(timeout_s=timeout_s)
    state_directory = os.environ.get("STATE_DIRECTORY")  # of systemd's service (systemd.exec(5))
    state = Path(state_directory) if state_directory else None
    most_bytes = waiting_mb * 1_000_000
    shipper = Shipper(store, to, retry_policy=retry_policy, most_bytes=most_bytes, state=state)
    if once:
        report = _pass(shipper, to, traces, retry_policy)
        _show(report, to, as_json=as_json)
        return 0 if report.succeeded else 1
    with _stop_event() as ended:
        pause_s = every_s
        while not ended.is_set():
            report = _pass(shipper, to, traces, retry_policy)
            if as_json or report.shipped or not report.succeeded:
                _show(report, to, as_json=as_json)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if report.failed else every_s
            ended.wait(max(pause_s, every_s))
    return 0


def _pass(
    shipper: Shipper, to: Destination, traces: tuple[Path, ...], retry_policy: RetryPolicy
) -> Report:
    report = shipper.ship()
    if traces and not report.failed:
        ship_traces(traces, to, retry_policy, report)
    return report


def _options(texts: tuple[str, ...]) -> dict[str, Any]:
    """Returns the settings by name. Valid JSON values are decoded; other values are texts."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--option {text}: write NAME=VALUE")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def _show(report: Report, to: Destination, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(to_json(report, to)))
        return
    shipped = f"{to.shown}: shipped {_parts(len(report.shipped))}, {report.bytes / 1e6:.1f} MB"
    phrases = [
        shipped,
        f"there before: {report.there}",
        f"hour not over: {report.open}" if report.open else "",
        f"waiting: {len(report.waiting)}, {report.waiting_bytes / 1e6:.1f} MB"
        if report.waiting
        else "",
        f"unknown whether there: {report.unknown}" if report.unknown else "",
    ]
    click.echo("; ".join(filter(None, phrases)))
    if report.left_out:
        say(f"more waits than --waiting: the oldest {_parts(report.left_out)} left out")
    if report.damaged_lines:
        say(f"{report.damaged_lines} lines of manifests are damaged: their parts are shipped again")
    lost = [Trouble(path, "the store removed it before it was shipped") for path in report.lost]
    for outcome, troubles in (
        ("not taken", report.failed),
        ("not shipped", report.refused),
        ("lost", lost),
    ):
        for trouble in troubles[:NAMED]:
            say(f"{outcome}: {trouble.path}: {trouble.why}")
        if len(troubles) > NAMED:
            say(f"{outcome}: {len(troubles) - NAMED} more")


def to_json(report: Report, to: Destination) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "destination": to.shown,
        "shipped": report.shipped,
        "bytes": report.bytes,
        "there": report.there,
        "open": report.open,
        "waiting": report.waiting,
        "waiting_bytes": report.waiting_bytes,
        "unknown": report.unknown,
        "left_out": report.left_out,
        "lost": report.lost,
        "refused": [trouble._asdict() for trouble in report.refused],
        "failed": [trouble._asdict() for trouble in report.failed],
        "damaged_manifest_lines": report.damaged_lines,
    }


def _parts(count: int) -> str:
    return f"{count} part{'' if count == 1 else 's'}"


@contextmanager
def _stop_event() -> Iterator[threading.Event]:
    """Yields an event that SIGTERM and SIGINT set: the running pass is the last one."""
    ended = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in numbers}
    try:
        yield ended
    finally:
        for number, of in before.items():
            signal.signal(number, of)
