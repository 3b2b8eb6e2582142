# SPDX-License-Identifier: Apache-2.0
"""`qjoule top`: shows which queries draw how much power now, live or from a recorded trace."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from qjoule.commands import options
from qjoule.commands.conversion import readable
from qjoule.commands.option_groups import ResultOptions, as_dataclass, is_given
from qjoule.commands.top_output import Printing, print_snapshots, send, show, without_stacks
from qjoule.commands.via import ViaCommand, remote_arguments
from qjoule.engine.keys import TAG, Selection, check_keys, selection
from qjoule.engine.live_groups import GROUPS
from qjoule.errors import UsageError
from qjoule.live.options import LimitedValues
from qjoule.machine.active_calibration import for_trace
from qjoule.remote.via import RemoteSource, other_end
from qjoule.remote.wire import Streams
from qjoule.session.options import TracingOptions
from qjoule.snapshots import Controls, SnapshotSource

#: Parameters that have no effect on a replay.
_LIVE = (
    *("energy", "pids", "generic", "agent", "client_tags", "credentials", "attach_mode"),
    *("pin_map", "stacks_hz"),
)


@click.command(
    cls=ViaCommand,
    short_help="Which queries draw how much power now.",
    epilog="""\b
Keys: e c l n sort, < turn, w waits, / filter, Space pause, Enter detail,
f functions, g group, + - interval, a all since reset, E export, R reset,
h help, q quit.

\b
Examples:
  sudo qjoule top
  sudo qjoule top --pid 812 --by server
  sudo qjoule top --generic
  sudo qjoule top --stacks
  sudo qjoule top --by tag:endpoint --where tag:tenant=42
  sudo qjoule top --client-tags --where tag:tenant=42
  sudo qjoule top -b -n 10 -d 5 --json | jq .interval.totals_j
  qjoule top --replay shop.qjoule
  qjoule top --replay shop.qjoule --by tag:endpoint --where tag:tenant=42
  qjoule top --replay shop.qjoule --by tag:tenant --max-values 20
  qjoule top --replay shop.qjoule -b -d 10 --csv > shop.csv
  qjoule top --via 'ssh db1 sudo'
""",
)
@click.option("-b", "--batch", is_flag=True, help="Print snapshots instead of a screen.")
@click.option(
    "-n",
    "snapshots",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after N snapshots (with -b).",
)
@click.option(
    "-d",
    "--delay",
    type=click.FloatRange(0.1, 3600.0),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Seconds per interval.",
)
@click.option("--json", "as_json", is_flag=True, help="With -b: a JSON document per line.")
@click.option("--csv", "as_csv", is_flag=True, help="With -b: CSV with a header.")
@click.option(
    "--replay", type=click.Path(path_type=Path), metavar="DIR", help="Play this recorded trace."
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.0),
    metavar="X",
    help="With --replay: X times as fast as recorded, 0 at once. [default: 1; with -b 0]",
)
@click.option(
    "--by",
    default="fingerprint",
    show_default=True,
    metavar="KEY[,KEY…]",
    help="Group by fingerprint, server or tag:KEY; a replay by all that `attribute --by` knows.",
)
@options.where
@options.max_values
@options.idle
@options.absolute
@options.calibration
@options.memory
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Rows of queries in a printed table (-b).",
)
@click.option(
    "--energy",
    metavar="SOURCE",
    callback=options.known_source,
    help="Energy source, as of 'qjoule record'. [default: auto]",
)
@click.option(
    "--pid",
    "pids",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="PID",
    help="Only this server; any process may be named. Repeatable.",
)
@options.generic
@options.agent
@options.stacks("the key f")
@options.client_tags
@options.ids
@options.pin_map
@options.no_follow
@options.credentials
@options.attach
@options.via
@options.streamed
@as_dataclass(Printing, "printing")
@as_dataclass(ResultOptions, "result_options")
@as_dataclass(TracingOptions, "tracing_options")
def command(
    *,
    printing: Printing,
    delay: float,
    replay: Path | None,
    speed: float | None,
    result_options: ResultOptions,
    energy: str | None,
    stacks_hz: int,
    tracing_options: TracingOptions,
    via: str | None,
    streamed: bool,
) -> None:
    """Show which queries draw how much power now, in a full-screen view.

    With -b, snapshots are printed instead, also where there is no terminal.
    """
    prints = printing.batch or streamed
    _check(printing, prints=prints)
    if stacks_hz and (prints or via is not None):
        raise UsageError(
            "--stacks is for the screen of this machine's servers: for files, use record --stacks "
            "and qjoule flame"
        )
    streams = Streams() if streamed else None
    keys = check_keys(list(result_options.keys))
    from_where: contextlib.AbstractContextManager[SnapshotSource]
    if via is not None:
        from_where = _remote_source(via, ",".join(keys), shows=printing.batch)
    elif replay is not None:
        if is_given(*_LIVE):
            raise UsageError(
                "--energy, --pid, --generic, --agent, --client-tags, --credentials, --attach, "
                "--pin-map, --stacks are for live tracing, not for --replay"
            )
        from qjoule.live.replay import ReplaySource  # noqa: PLC0415 (Arrow, which live tracing
        from qjoule.trace.reader import Trace  # noqa: PLC0415  never needs, holds 30 MB)

        pace = speed if speed is not None else 0.0 if printing.batch else 1.0
        (path,) = readable([replay])
        trace = Trace(path)
        from_where = contextlib.nullcontext(
            ReplaySource(
                trace,
                by=keys,
                idle=result_options.idle,
                speed=pace,
                calibrated=for_trace(trace, result_options.calibration, result_options.memory),
                where=selection(result_options.where),
            )
        )
    else:
        if speed is not None:
            raise UsageError("--speed is for --replay")
        _check_live(keys, selection(result_options.where), client_tags=tracing_options.client_tags)
        from qjoule.commands.top_live import live  # noqa: PLC0415 (what a replay does not need)

        # Only the screen has a key for other groupings; the first one gives the coverage.
        groups = GROUPS[:1] if prints and "server" not in keys else GROUPS
        from_where = live(
            tracing_options,
            result_options,
            energy or "auto",
            delay,
            stacks_hz=stacks_hz,
            groups=groups,
        )
    # The total decides which values of a tag get rows.
    totals = not prints or any(key.startswith(TAG) for key in keys)
    controls = Controls(delay, ",".join(keys), totals=totals)
    with from_where as source:
        # With `--via`, the other end adds up intervals, and then adds the error of the total.
        limited = LimitedValues(
            source, result_options.max_values, absolute=result_options.absolute and not streamed
        )
        try:
            if streams is not None:
                send(limited, controls, streams)
            elif printing.batch:
                print_snapshots(limited, controls, printing)
            else:
                show(limited, controls, without_stacks(via, replay, stacks_hz))
        finally:
            controls.stop()
            source.close()


@contextlib.contextmanager
def _remote_source(via: str, group: str, *, shows: bool) -> Iterator[SnapshotSource]:
    """Yields the snapshots of `top` at the other end."""
    with other_end(via, remote_arguments("top"), shows=shows) as end:
        yield RemoteSource(end, group)


def _check(printing: Printing, *, prints: bool) -> None:
    if printing.as_json and printing.as_csv:
        raise UsageError("give --json or --csv, not both")
    if not prints and (printing.as_json or printing.as_csv or printing.snapshots):
        raise UsageError("--json, --csv and -n need -b")
    if not prints and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the live view needs a terminal: add -b to print snapshots")


def _check_live(keys: Sequence[str], where: Selection, *, client_tags: bool) -> None:
    """Checks that a live stream has the keys: shape, server, clients' tags if they are read, and
    the calls that clients report."""
    by = ",".join(keys)
    by_tag = len(keys) == 1 and by.startswith(TAG)
    if by not in GROUPS and not by_tag:
        raise UsageError(
            f"the live view groups by {', '.join(GROUPS)} or one tag:KEY: for --by {by}, "
            "record a trace and use --replay"
        )
    for key, _ in where.wanted:
        if key != "server" and not ((by_tag or client_tags) and key.startswith(TAG)):
            raise UsageError(
                "the live view selects by server and, with --client-tags or --by tag:KEY, by "
                f"tag:KEY: for --where {key}, record a trace and use --replay"
            )
