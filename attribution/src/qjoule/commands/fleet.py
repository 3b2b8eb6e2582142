# SPDX-License-Identifier: Apache-2.0
"""`qjoule fleet`: questions about the rollups of many hosts."""

from __future__ import annotations

import click

from qjoule.commands.lazy_group import LazyGroup

#: Command name to the module in `qjoule.commands` that holds its `command`.
COMMANDS = {
    "top": "fleet_top",
    "query": "fleet_query",
    "compare": "fleet_compare",
    "requests": "fleet_requests",
}


class FleetGroup(LazyGroup):
    """The commands of `qjoule fleet`."""

    modules = COMMANDS


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

A dataset is what `qjoule ship` fills, or one agent's store (qjoule/fleet/README.md).
""",
)
def command() -> None:
    """Ask the rollups of many hosts: which statement, tenant, host or release draws most.

    `requests` reads traces instead of a dataset: what one request cost over all servers.
    """
