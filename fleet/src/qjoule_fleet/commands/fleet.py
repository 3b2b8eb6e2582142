# SPDX-License-Identifier: Apache-2.0
"""`qjoule fleet`: questions about the rollups of many hosts."""

from __future__ import annotations

import click

from qjoule.api.command import LazyGroup

#: By command name: the module, which defines `command`, and a short help.
COMMANDS = {
    "top": ("qjoule_fleet.commands.fleet_top", "What draws most, over many hosts."),
    "query": ("qjoule_fleet.commands.fleet_query", "SQL over the rollups of many hosts."),
    "compare": (
        "qjoule_fleet.commands.fleet_compare",
        "What a deploy changed; which hosts differ.",
    ),
    "requests": (
        "qjoule_fleet.commands.fleet_requests",
        "Joules of requests over the servers of several hosts.",
    ),
}


class FleetGroup(LazyGroup):
    """The commands of `qjoule fleet`."""

    commands_of = COMMANDS


@click.group(
    cls=FleetGroup,
    short_help="Joules of many hosts, from their rollups.",
    subcommand_metavar="COMMAND DATASET [ARGS]...",
    epilog="""\b
Examples:
  qjoule fleet top /srv/fleet --last 24h
  qjoule fleet top s3://bucket/fleet --by host,server --from 2026-11-22
  qjoule fleet compare /srv/fleet --at 2026-11-23T02:00
  qjoule fleet query /srv/fleet 'select count(*) from queries'
  qjoule fleet requests db1.qjoule db2.qjoule cache.qjoule

A dataset is what `qjoule ship` fills, or one agent's store (fleet/README.md).
""",
)
def command() -> None:
    """Ask the rollups of many hosts: which statement, tenant, host or release draws most.

    `requests` reads traces instead of a dataset: what one request cost over all servers.
    """
