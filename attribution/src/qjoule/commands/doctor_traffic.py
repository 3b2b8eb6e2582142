# SPDX-License-Identifier: Apache-2.0
"""`qjoule doctor --traffic`: traces briefly before it calls an attach mode exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.reporters.missing import alarm_of, lost
from qjoule.reporters.server_changes import hidden_advice
from qjoule.root_part.client import root_part
from qjoule.servers.attach_plan import AttachPlan, PlannedServer
from qjoule.session.traffic import Traffic, measure_traffic
from qjoule.trace.meta import HIDDEN, Change

option = click.option(
    "--traffic",
    type=click.FloatRange(0, 60),
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    help="As root, trace the running servers for so long, to see whether their requests are seen; "
    "0: do not.",
)


def measure(plan: AttachPlan, seconds: float) -> Traffic | None:
    """Traces briefly; None without root, time, or a running server with queries."""
    if not seconds or root_part().connection is None or not any(map(_is_measured, plan.traced)):
        return None
    try:
        return measure_traffic(plan, seconds)
    except QjouleError as why:
        return Traffic(seconds, problem=str(why))


def describe(traffic: Traffic | None, planned: PlannedServer) -> str:
    """Describes one server in a line; '' if nothing was measured."""
    if traffic is None or not _is_measured(planned):
        return ""
    if traffic.problem:
        return f"not measured: {traffic.problem}"
    requests = traffic.requests.get(planned.server.id, 0)
    hidden = traffic.hidden.get(planned.server.id, 0)
    if not requests and not hidden:
        return f"no request in {traffic.seconds:g} s, so this is not proven"
    text = f"{requests:,} requests in {traffic.seconds:g} s"
    attach_modes = traffic.attach_modes.get(planned.server.id, frozenset())
    if others := attach_modes - {planned.choice.attach_mode.name.lower()}:
        text += f", some on another attach mode: {', '.join(sorted(others))}"
    if hidden:
        change = Change(HIDDEN, planned.server.label, why=planned.choice.no_symbol or "")
        advice = hidden_advice([change])
        text += f", and {hidden:,} sessions hidden by TLS or compression ({advice})"
    return f"{text}; lost, of all servers: {lost(traffic.loss) or 'nothing'}"


def alarm(traffic: Traffic | None) -> Iterator[str]:
    """Yields a line if too many records were lost to call anything exact."""
    if traffic is not None and (text := _alarm(traffic)):
        yield text


def of_server(traffic: Traffic | None, planned: PlannedServer) -> dict[str, Any]:
    """Returns the measured fields of a server's JSON."""
    if traffic is None or traffic.problem or not _is_measured(planned):
        return {}
    number = planned.server.id
    requests, hidden = traffic.requests.get(number, 0), traffic.hidden.get(number, 0)
    proven = planned.choice.exact and requests > 0 and not hidden and not _alarm(traffic)
    attach_modes = sorted(traffic.attach_modes.get(number, frozenset()))
    return {
        "traffic": {
            "requests": requests,
            "hidden": hidden,
            "attach_modes": attach_modes,
            "proven_exact": proven,
        }
    }


def to_json(traffic: Traffic | None) -> dict[str, Any]:
    """Returns the measured fields of all servers together for JSON."""
    if traffic is None:
        return {}
    return {
        "traffic": {
            "seconds": traffic.seconds,
            "problem": traffic.problem,
            "loss": dict(traffic.loss),
            "alarm": _alarm(traffic),
        }
    }


def _is_measured(planned: PlannedServer) -> bool:
    return (
        planned.traced
        and planned.server.running
        and planned.choice.attach_mode is not AttachMode.NONE
    )


def _alarm(traffic: Traffic) -> str:
    return alarm_of(traffic.loss, sum(traffic.requests.values()))
