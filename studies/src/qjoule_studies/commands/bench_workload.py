# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench WORKLOAD`: makes a plan from its command line."""

from __future__ import annotations

import re
from contextlib import suppress
from math import isfinite
from typing import Any

import click

from qjoule.api import UsageError
from qjoule.api.command import to_toml
from qjoule_studies.commands import bench_options
from qjoule_studies.plan import SETTING, Plan
from qjoule_studies.plan_file import plan_of
from qjoule_studies.workload import Value
from qjoule_studies.workloads import workload

_SHORT = {
    "ycsb": "YCSB's core workloads and single commands.",
    "twitter": "Pairs of queries: a worse and a better form.",
    "operators": "Scans, sorts, joins and aggregates.",
    "tpch": "TPC-H queries on generated data.",
    "load": "Steps of a server's peak load, or a profile.",
    "replay": "Read-only statements, alone and together, as `learn` repeats them.",
}
_NUMBER = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_LEAST, _MOST = 5, 30  #: replications with --until


class WorkloadCommand(click.Command):
    """The command of one workload. The workload itself is loaded when it is run or described."""

    def __init__(self, name: str) -> None:
        def run(**options: Any) -> int:
            from qjoule_studies.commands.bench_run import run_plan  # noqa: PLC0415 (as in bench.py)

            plan = made_plan(name, options)
            again = options["failed_again"]
            return run_plan(plan, options["output"], again=again)

        for option in _OPTIONS:
            run = option(run)
        parameters = list(getattr(run, "__click_params__", []))
        short = _SHORT.get(name, "")
        super().__init__(name, callback=run, params=parameters, short_help=short, help=short)

    def format_epilog(
        self,
        ctx: click.Context,  # noqa: ARG002 (click's interface)
        formatter: click.HelpFormatter,
    ) -> None:
        """The workload's options with their defaults: for --set and --factor."""
        work = workload(str(self.name))
        rows = [(name, f"default: {_shown(of)}") for name, of in sorted(work.defaults.items())]
        with formatter.section("Options of the workload (--set, --factor)"):
            formatter.write_dl(rows or [("none", "")])
        with formatter.section("Servers"):
            formatter.write_text(", ".join(sorted(work.flavours)))


def made_plan(name: str, options: dict[str, Any]) -> Plan:
    """The plan described by the options. Raises `UsageError`."""
    settings = _pairs("--set", options["settings"])
    of_server = {k.removeprefix(SETTING): v for k, v in settings.items() if k.startswith(SETTING)}
    document: dict[str, Any] = {
        "workload": name,
        "options": {k: v for k, v in settings.items() if not k.startswith(SETTING)},
        "factors": _factors(options["factors"]),
        "design": {"seed": options["seed"]},
        "record": {
            "energy": options["energy"] or "auto",
            "without_energy": options["without_energy"],
        },
        "control": {"settle": options["settle"]},
        "warm_up": {"seconds": options["warm_up"]},
    }
    if server := options["server"]:
        document["server"] = server
        document["settings"] = {server: of_server} if of_server else None
    elif of_server:
        raise UsageError("--set server.NAME is for a server that is started: add --server")
    target = {
        key: value
        for key in ("pid", "flavour", "host", "port", "socket", "user", "database")
        if (value := options[key]) not in (None, "")
    }
    if target:
        document["target"] = target
    document["replications"] = _replications(options)
    document = {key: value for key, value in document.items() if value}
    try:
        to_toml(document).encode()
    except UnicodeEncodeError:
        raise UsageError("the command line is not UTF-8 text") from None
    return plan_of(document, "the command line")


def parse_value(text: str) -> Value:
    """A word of the command line: `10` and `1e3` are numbers, `"10"` and `on` are texts."""
    if text in ("true", "false"):
        return text == "true"
    if len(text) > 1 and text[0] in "'\"" and text[0] == text[-1]:
        return text[1:-1]
    for kind in (int, float) if _NUMBER.fullmatch(text) else ():
        with suppress(ValueError, OverflowError):
            if isfinite(number := kind(text)):
                return number
    return text


def _ratio(text: str) -> float:
    """`5%` or `0.05` as 0.05."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"--until {text}: give a share such as 5% or 0.05") from None


def _replications(options: dict[str, Any]) -> Any:
    times, until = options["replications"], options["until"]
    if until is None:
        return 3 if times is None else times
    least = _LEAST if times is None else times
    return {"least": least, "most": max(options["most"] or _MOST, least), "until": _ratio(until)}


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, Value]:
    pairs: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} {text}: give it as NAME=VALUE")
        if name in pairs:
            raise UsageError(f"{option} {name} is there twice")
        pairs[name] = parse_value(value)
    return pairs


def _factors(texts: tuple[str, ...]) -> dict[str, list[Value]]:
    pairs: dict[str, list[Value]] = {}
    for text in texts:
        name, equals, levels = text.partition("=")
        if not name or not equals or not levels:
            raise UsageError(f"--factor {text}: give it as NAME=A,B,C")
        if name in pairs:
            raise UsageError(f"--factor {name} is there twice")
        pairs[name] = [parse_value(level) for level in levels.split(",")]
    return pairs


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value != "" else "''"


_OPTIONS = (
    bench_options.output,
    click.option("--server", metavar="NAME", help="Start this server for the study."),
    click.option("--pid", type=click.IntRange(min=1), metavar="PID", help="A server that runs."),
    click.option("--flavour", metavar="NAME", help="A server that runs, if it is the only one."),
    click.option("--host", metavar="NAME", help="Where it is. [default: this machine]"),
    click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="Its port."),
    click.option("--socket", metavar="FILE", help="Its Unix socket."),
    click.option(
        "--user", metavar="NAME", help="Log in as; the password is that of $QJOULE_PASSWORD."
    ),
    click.option("--database", metavar="NAME", help="Which of its databases."),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="OPTION=VALUE",
        help="An option of the workload, or server.NAME of the server; repeatable.",
    ),
    click.option(
        "--factor",
        "factors",
        multiple=True,
        metavar="NAME=A,B,C",
        help="What is varied: such an option, server, governor, frequency_mhz; repeatable.",
    ),
    click.option(
        "--replications",
        type=click.IntRange(min=1),
        metavar="N",
        help=f"Runs of each combination. [default: 3; with --until {_LEAST}, and more]",
    ),
    click.option(
        "--until",
        metavar="SHARE",
        help="More runs until the 95 % interval of J/operation is this narrow, such as 5%.",
    ),
    click.option(
        "--most",
        type=click.IntRange(min=1),
        metavar="N",
        help=f"With --until: at most so many. [default: {_MOST}]",
    ),
    click.option(
        "--warm-up",
        type=click.FloatRange(min=0),
        default=0.0,
        metavar="SECONDS",
        help="Run it so long before a server's first run.",
    ),
    click.option(
        "--settle",
        type=click.Choice(["flag", "refuse", "off"]),
        default="flag",
        show_default=True,
        help="A run before which the machine is not at rest: flag it, or do not make it.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=1,
        show_default=True,
        metavar="N",
        help="Of the runs' order.",
    ),
    bench_options.energy,
    bench_options.without_energy,
    bench_options.failed_again,
)
