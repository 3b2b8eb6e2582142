# SPDX-License-Identifier: Apache-2.0
"""`qjoule agent`: the always-on service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from qjoule.agent.config import KEYS, load
from qjoule.agent.notify import Manager
from qjoule.agent.small import keep_small
from qjoule.commands.agent_listeners import start_listeners
from qjoule.commands.say import say
from qjoule.errors import UsageError
from qjoule.remote.access import new_token
from qjoule.root_part.client import root_part


@click.command(
    short_help="Watch always: metrics for Prometheus, rollups per minute.",
    epilog="""\b
Signals: SIGHUP reads the configuration again, SIGTERM and Ctrl-C end it.

\b
Examples:
  qjoule agent --example > agent.toml
  qjoule agent --config agent.toml --check
  sudo qjoule agent --config agent.toml
  curl http://127.0.0.1:9779/metrics
  qjoule agent --token anna --scopes view,texts --days 90
""",
)
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration (TOML).",
)
@click.option(
    "--pid",
    "pids",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="PID",
    help="Only this server; any process may be named. Repeatable.",
)
@click.option("--check", is_flag=True, help="Only check the configuration.")
@click.option("--example", is_flag=True, help="Print a configuration with every key.")
@click.option("--token", metavar="NAME", help="Make a token for another desk, and its line.")
@click.option(
    "--scopes",
    default="view",
    show_default=True,
    metavar="WORDS",
    help="With --token: some of metrics,view,texts,control.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3660),
    default=365,
    show_default=True,
    metavar="N",
    help="With --token: how long it is valid.",
)
def command(
    *,
    path: Path | None,
    pids: tuple[int, ...],
    check: bool,
    example: bool,
    token: str | None,
    scopes: str,
    days: int,
) -> int:
    """Trace this machine's servers for as long as it runs, as a service does.

    Serves metrics on a loopback address and keeps rollups per minute.
    """
    if example:
        click.echo(example_text(), nl=False)
        return 0
    if token is not None:
        return _make_token(token, scopes, days)
    path = None if path is None else path.absolute()
    config = load(path)
    if check:
        say(f"{path or 'the default configuration'}: ok")
        return 0
    root_part().need("the agent")
    keep_small()
    manager = Manager.of_environment(root_part().notify)
    listeners = start_listeners(config)
    from qjoule.commands.agent_run import run  # noqa: PLC0415 (the listening processes stay small)

    return run(config, lambda: load(path), manager, listeners, pids=pids)


def _make_token(name: str, scopes: str, days: int) -> int:
    try:
        last_day = datetime.now(UTC).date() + timedelta(days=days)
        token, line = new_token(name, scopes, last_day)
    except ValueError as error:
        raise UsageError(f"--token: {error}") from None
    say("for the desk; it is shown once:")
    click.echo(token)
    say("for remote.token_file, which holds only its hash:")
    click.echo(line)
    return 0


def example_text() -> str:
    """A configuration file with every key at its default."""
    lines: list[str] = []
    section = ""
    for name, key in KEYS.items():
        if (of := name.partition(".")[0]) != section:
            lines += ["" if not section else "\n", f"[{of}]\n"]
            section = of
        value = key.default
        text = f'"{value}"' if isinstance(value, str) else str(value).lower()
        choices = f": {', '.join(key.choices)}" if key.choices else ""
        lines.append(f"# {key.about}{choices}\n{name.partition('.')[2]} = {text}\n")
    return "".join(lines)
