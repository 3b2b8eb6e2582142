# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, so that they have the same meaning and help text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qjoule.contract import AttachMode
from qjoule.machine.sources import tracer_sources
from qjoule.model import IDLE_POLICIES
from qjoule.servers.registry import servers

if TYPE_CHECKING:
    from qjoule.machine.perf_events import PerfEvent

Command = Callable[..., Any]
Option = Callable[[Command], Command]

#: Servers that can have an agent, for help texts.
_WITH_AGENT = " or ".join(
    flavour.capitalize()
    for server in servers().values()
    if "agent" in server.attach_modes
    for flavour in server.flavours
)

calibration = click.option(
    "--calibration",
    type=click.Path(readable=False),
    metavar="FILE|none",
    help="Coefficients from `qjoule calibrate`. [default: the machine's; of a trace, its own]",
)

memory = click.option(
    "--memory",
    type=click.Path(readable=False),
    metavar="FILE|none",
    help="What earlier traces showed of this machine's power. It is used and extended "
    "(docs/calibration.md). [default: the machine's; of a trace, its own]",
)

idle = click.option(
    "--idle",
    type=click.Choice(IDLE_POLICIES),
    default="separate",
    show_default=True,
    help="Idle energy: a row of its own, spread evenly over owners, or by their weights.",
)

without_stolen = click.option(
    "--without-stolen",
    is_flag=True,
    help="On a virtual machine, CPU time in which the host ran something else does not count: "
    "joules are shared out by the rest.",
)

output = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to this file. [default: standard output]",
)

symfs = click.option(
    "--symfs",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Where the root directory of the traced servers is, such as a container's, to read the "
    "names of functions from their files. [default: /]",
)

columns = click.option(
    "--columns",
    type=click.Choice(("usual", "waits")),
    default="usual",
    show_default=True,
    help="Of the table: waits shows where the latency of queries went. Other formats have both.",
)

absolute = click.option(
    "--absolute",
    is_flag=True,
    help="Add the error of an estimated total, which all rows have in common, to each row's "
    "interval: for joules that are compared with those of another total.",
)

where = click.option(
    "--where",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only queries with this value of a key of --by; the others are one row for each server. "
    "Repeatable: of one key any value will do, of several keys all must.",
)

max_values = click.option(
    "--max-values",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Name only the N values of a tag in --by that have the most energy; the others are "
    "'other'.",
)

generic = click.option(
    "--generic",
    is_flag=True,
    help="Also trace every other process that listens on a socket, by thread name and without "
    "queries; also known servers whose queries cannot be seen.",
)

agent = click.option(
    "--agent",
    is_flag=True,
    help=f"Put an agent into each running {_WITH_AGENT}, which changes two of its methods while it "
    "runs, until tracing ends. Its requests are then counted exactly, with their texts. Not for "
    "servers that run as root.",
)

no_follow = click.option(
    "--no-follow",
    "follow",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not follow servers that are upgraded or start elsewhere while tracing lasts: they are "
    "only named, and nothing is attached once tracing has begun.",
)


def stacks(what: str) -> Option:
    """The option that samples stacks; `what` names the output that shows them."""
    return click.option(
        "--stacks",
        "stacks_hz",
        type=click.IntRange(0, 10_000),
        is_flag=False,
        flag_value=99,
        default=0,
        metavar="[HZ]",
        help="Also sample the stacks of servers' threads, so often per second of CPU time (99; 0: "
        f"none), for {what}.",
    )


credentials = click.option(
    "--credentials",
    type=click.Path(path_type=Path, readable=False),  # by this user: the root part opens it
    metavar="FILE",
    help="Accounts (TOML, mode 600) with which servers may be asked for the texts of statements "
    "that were prepared before, and for the clients' names of sessions that were open before: "
    "[PRODUCT] or [SERVER], user, password, host, users. [PRODUCT] holds for servers of root and "
    'of the listed users (users = ["mysql"]). A section without a user permits it for a server '
    "without accounts. Only a server that is proven to be the traced one gets a password.",
)

_ATTACH_MODES = ("auto", "socket", "symbol", "statistical")


def attach_mode(text: str | None) -> AttachMode | None:
    """Parses an attach mode. None: the cheapest exact mode of each server."""
    return None if text in (None, "auto") else AttachMode[text.upper()]


def attach(command: Command) -> Command:
    """`--attach`, see `attach_mode`; the former name `--rung` still works."""
    for name, about in (("--rung", None), ("--attach", "How query boundaries are found.")):
        command = click.option(
            name,
            "attach_mode",
            type=click.Choice(_ATTACH_MODES),
            callback=lambda _context, _parameter, text: attach_mode(text),
            hidden=about is None,
            help=about and f"{about} [default: auto]",
        )(command)
    return command


client_tags = click.option(
    "--client-tags",
    is_flag=True,
    help="Also read tags that clients, also those on other hosts, send with their statements: in "
    "comments (sqlcommenter), query attributes, custom payloads and connection names.",
)


ids = click.option(
    "--ids",
    is_flag=True,
    help="Also find the ids that other tools have for each statement: pt-query-digest's checksum, "
    "MySQL's digest, PostgreSQL's queryid.",
)

pin_map = click.option(
    "--pin-map",
    is_flag=True,
    help="Pin the kernel's map of servers' threads at /sys/fs/bpf/qjoule/threads until tracing "
    "ends: by it, other eBPF profilers of root find the query and the statement that a thread "
    "works for (bpf/README.md).",
)


def _events(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> tuple[PerfEvent, ...]:
    if text is None:
        return ()
    from qjoule.machine.perf_events import parse_events  # noqa: PLC0415 (numpy takes its time)

    return parse_events(text)


counters = click.option(
    "--counters",
    "more_counters",
    callback=_events,
    metavar="NAME[,NAME…]",
    help="Also count these events, by perf's names (for `qjoule characterise`): branch-misses, "
    "L1-dcache-load-misses, raw r01c2, L2-misses=r3f24 under a name; :u or :k: of user space or "
    "the kernel alone. Cycles, instructions and cache-misses are always counted. If there are more "
    "events than the CPU can count at once, they take turns, and the share of time in which each "
    "was counted is recorded.",
)


def known_source(
    _context: click.Context, _parameter: click.Parameter, source: str | None
) -> str | None:
    """Validates the energy source before anything starts. Raises click.BadParameter.

    Checks the name only, against the tracer's list; without a tracer accepts any name.
    """
    if source is not None and source != "auto" and (sources := tracer_sources()):
        names = ["auto", *(entry.name for entry in sources)]
        if source.partition(":")[0] not in names:
            raise click.BadParameter(f"'{source}' is none of {', '.join(names)}")
    return source


def energy(what: str) -> Option:
    """The option for the energy source; `what` is its help text."""
    return click.option(
        "--energy",
        default="auto",
        show_default=True,
        metavar="SOURCE",
        callback=known_source,
        help=what,
    )


def seconds(least: float, most: float, default: float, what: str) -> Option:
    """The option for the duration of a command's work; `what` is its help text."""
    return click.option(
        "--seconds",
        type=click.FloatRange(least, most),
        default=default,
        show_default=True,
        metavar="S",
        help=what,
    )


def more_than_before(name: str, most: float, default: float, what: str) -> Option:
    """A percentage option that ends a run when other programs do so much more than at its start."""
    return click.option(
        name,
        type=click.FloatRange(1, most),
        default=default,
        show_default=True,
        metavar="PCT",
        help=what,
    )


def waiting(what: str) -> Option:
    """The option that ends a run when threads wait for a CPU. `what` begins its help text."""
    return click.option(
        "--waiting",
        type=click.FloatRange(0.5, 10_000),
        default=2.0,
        show_default=True,
        metavar="N",
        help=f"{what} if so many more threads wait for a CPU than at the start.",
    )


meter = click.option(
    "--meter",
    "meter_command",
    metavar="CMD",
    help="Also run this program of a wall meter or PDU, which prints lines 'TIME VALUE UNIT' "
    "(docs/energy.md): what the whole machine draws is a ledger of its own, wall.",
)
meter_file = click.option(
    "--meter-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The same lines from a file that grows, or a pipe.",
)

via = click.option(
    "--via",
    metavar="CMD",
    help="Run there by this command, such as 'ssh db1 sudo' or 'kubectl exec -i POD --'.",
)
streamed = click.option(
    "--stdout", "streamed", is_flag=True, help="For --via: to standard output, until input ends."
)
