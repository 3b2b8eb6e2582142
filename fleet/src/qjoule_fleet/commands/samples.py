# SPDX-License-Identifier: Apache-2.0
"""`qjoule samples`: estimates joules by keys that the sums lack, from sampled queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from qjoule.api import QjouleError, UsageError
from qjoule_fleet.commands import fleet_options

#: Copy of `qjoule_fleet.samples.KEYS`, whose import would load Arrow.
KEYS = ("user", "database", "application", "client", "server", "shape", "outcome")


@click.command(
    short_help="Joules by user or client, from queries drawn at random.",
    epilog="""\b
Examples:
  qjoule samples /var/lib/qjoule/agent
  qjoule samples /var/lib/qjoule/agent --by user,client --last 2h
  qjoule samples /var/lib/qjoule/agent --by shape --json

\b
The agent draws `store.samples` queries of each statement in five minutes
(docs/agent.md). Each stands for 1 / probability queries.
""",
)
@click.argument("where", type=click.Path(readable=False), metavar="STORE")
@click.option(
    "--by",
    default="user",
    show_default=True,
    metavar="KEY[,KEY…]",
    help=f"Group by {', '.join(KEYS[:-1])} or {KEYS[-1]}.",
)
@fleet_options.times
@fleet_options.outputs
def command(
    *, where: str, by: str, form: str, as_json: bool, output: Path | None, **options: Any
) -> None:
    """Estimate totals of an agent's store from its random sample, with 95 % intervals.

    The intervals contain what the draws leave open and the error of the energy. Totals by
    statement that are exact: `qjoule fleet top STORE`.
    """
    keys = by.split(",")
    if unknown := [key for key in keys if key not in KEYS]:
        raise UsageError(f"--by {unknown[0]!r}: group by {', '.join(KEYS)}")
    if len(set(keys)) < len(keys):
        raise UsageError(f"--by {by}: a key is there twice")
    form = fleet_options.form_of(form, output, as_json=as_json)
    from qjoule_fleet.files import Refused, dataset  # noqa: PLC0415 (Arrow)
    from qjoule_fleet.reporters.fleet_query import write  # noqa: PLC0415
    from qjoule_fleet.reporters.samples import render  # noqa: PLC0415
    from qjoule_fleet.samples import by_keys, drawn_in  # noqa: PLC0415
    from qjoule_fleet.times import Zone  # noqa: PLC0415

    range_ = fleet_options.range_of(options, Zone(options["zone"]))
    refused: list[Refused] = []
    rows = drawn_in(dataset(where), range_, refused)
    fleet_options.print_refused(tuple(refused))
    if not rows.num_rows:
        raise QjouleError(
            f"no drawn query from {range_}: see --last, and store.samples of the agent"
        )
    table = by_keys(rows, keys)
    if form == "table":
        text = render(table.to_pylist(), keys)
        if output is None:
            click.echo(text, nl=False)
        else:
            output.write_text(text, encoding="utf-8")
        return
    write(iter([table.schema, *table.to_batches()]), form, output)
