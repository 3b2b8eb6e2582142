# SPDX-License-Identifier: Apache-2.0
"""`qjoule doctor`: what can be traced here, how, at what cost, and how to fix what is missing."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from qjoule.commands import doctor_rights, doctor_traffic
from qjoule.machine.facts import Check
from qjoule.servers.attach_plan import AttachPlan, PlannedServer
from qjoule.servers.discovery import Discovery
from qjoule.servers.types import Server
from qjoule.session.traffic import Traffic
from qjoule.shapes.safe_text import sanitise

SCHEMA = "qjoule.doctor/1"

#: Checks that a recording needs. If any other check fails, figures are less detailed or less exact.
ESSENTIAL = (
    *("privileges", "seccomp", "btf"),
    *("tracepoint sched_switch", "tracepoint sched_process_exit"),
)

_WIDTH_MIN, _WIDTH_MAX = 60, 100
_INDENT = 10
_GENERIC_SHOWN = 16  #: servers of unknown protocol: as many as can be traced at a time
_MARKS = {True: ("ok", "green"), False: ("missing", "red"), None: ("unknown", "yellow")}


@dataclass(frozen=True)
class Findings:
    """All findings of doctor."""

    checks: tuple[Check, ...]
    power: str  #: one line: the basis of a power estimate
    plan: AttachPlan
    discovery: Discovery
    generic: tuple[Server, ...] = ()  #: other listening servers, of unknown protocol
    rights: tuple[doctor_rights.Rights, ...] = ()  #: of each process of a recording
    traffic: Traffic | None = None  #: counts of a short tracing; None if not measured

    @property
    def problems(self) -> tuple[str, ...]:
        """Returns the reasons that prevent a recording, one line each."""
        missing = [c for c in self.checks if c.name in ESSENTIAL and c.ok is False]
        return (
            *(f"{c.name}: {c.detail}" + (f"; {c.fix}" if c.fix else "") for c in missing),
            *(
                f"{planned.server.label} cannot be traced: {planned.choice.why}"
                for planned in self.plan.servers
                if planned.server.running and not planned.traced
            ),
        )


@click.command(
    short_help="What can be traced here, and how to mend the rest.",
    epilog="""\b
Examples:
  sudo qjoule doctor
  sudo qjoule doctor --json | jq '.servers[] | {label, attach_mode, why}'

\b
Exit code 0: a recording can be made. 1: something it needs is missing.
""",
)
@click.option(
    "--host-root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A powercap-like tree of energy counters given by the hypervisor.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@doctor_traffic.option
@click.pass_context
def command(
    context: click.Context, /, *, host_root: Path | None, as_json: bool, traffic: float
) -> None:
    """Say what can be traced on this machine, and how to mend what is missing.

    Looks at kernel, privileges, counters, energy sources and the database servers that run or are
    installed, and as root traces them for a second; changes nothing.
    """
    width = min(max(shutil.get_terminal_size((80, 24)).columns, _WIDTH_MIN), _WIDTH_MAX)
    findings = examine(host_root)
    findings = replace(findings, traffic=doctor_traffic.measure(findings.plan, traffic))
    if as_json:
        click.echo(json.dumps(to_json(findings), indent=2))
    else:
        # click omits colours if standard output is no terminal.
        colour = False if os.environ.get("NO_COLOR") else None
        for line in render(findings, width):
            click.echo(line, color=colour)
    context.exit(1 if findings.problems else 0)


def examine(host_root: Path | None = None) -> Findings:
    """Examines this machine."""
    # Imported here so that `--help` stays fast.
    from qjoule.machine.active_calibration import checks as power_checks  # noqa: PLC0415
    from qjoule.machine.facts import read_cpu_info, read_host_hardware  # noqa: PLC0415
    from qjoule.machine.identity import this_machine  # noqa: PLC0415
    from qjoule.machine.kernel import check_machine, read_kernel_facts  # noqa: PLC0415
    from qjoule.machine.power_table import estimate_curve  # noqa: PLC0415
    from qjoule.root_part.client import root_part  # noqa: PLC0415
    from qjoule.root_part.host import this_host  # noqa: PLC0415
    from qjoule.servers.discovery import discover  # noqa: PLC0415
    from qjoule.servers.generic import find_generic  # noqa: PLC0415
    from qjoule.servers.plan import build_plan  # noqa: PLC0415

    part = root_part()
    root_process = part.process
    host = this_host()
    discovery = discover(host=host)
    curve = estimate_curve(read_cpu_info(), read_host_hardware())
    return Findings(
        checks=(
            *check_machine(host_root=host_root, sensors=part.sensors(), privileged=root_process),
            *power_checks(this_machine()),
        ),
        power=curve.summary,
        plan=build_plan(discovery.servers, read_kernel_facts(process=root_process)),
        discovery=discovery,
        generic=tuple(find_generic(discovery.servers, host=host)),
        rights=tuple(doctor_rights.rights_of_a_recording(root_part=root_process)),
    )


def to_json(findings: Findings) -> dict[str, Any]:
    """Schema `qjoule.doctor/1`."""
    return {
        "schema": SCHEMA,
        "ready": not findings.problems,
        "problems": list(findings.problems),
        "checks": [asdict(check) for check in findings.checks],
        "rights": [asdict(rights) for rights in findings.rights],
        "estimated_power": findings.power,
        "servers": [
            planned.summary() | doctor_traffic.of_server(findings.traffic, planned)
            for planned in findings.plan.servers
        ],
        **doctor_traffic.to_json(findings.traffic),
        "generic_servers": [_generic_to_json(server) for server in findings.generic],
        "hidden_processes": findings.discovery.hidden,
        "unreadable_executables": list(findings.discovery.unreadable),
    }


def render(findings: Findings, width: int) -> Iterator[str]:
    """Yields lines of at most `width` columns. Text that a process could choose is sanitised."""
    yield click.style("Machine", bold=True)
    for check in findings.checks:
        yield from _check(check, width)
    yield from _wrap(
        "  " + "power".ljust(_INDENT - 2) + f"estimated: {findings.power}", width, _INDENT
    )
    yield ""
    if findings.rights:
        yield click.style("Processes", bold=True)
        for line in doctor_rights.lines(findings.rights):
            yield from _wrap(line, width, 13)
        yield ""
    yield click.style("Database servers", bold=True)
    for planned in findings.plan.servers:
        yield from _server(planned, findings.traffic, width)
    if not findings.plan.servers:
        yield "  none found, neither running nor installed where packages put them"
    for line in findings.discovery.unreadable:
        yield from _wrap(f"  not read: {line}", width, 4)
    if findings.discovery.hidden and not _is_root(findings):
        hidden = findings.discovery.hidden
        yield from _wrap(f"  {hidden} processes of other users are hidden: run as root", width, 4)
    for line in doctor_traffic.alarm(findings.traffic):
        yield click.style("  ALARM", fg="red") + _wrap(f": {line}", width - 7, 4)[0]
    yield ""
    if findings.generic:
        yield click.style("Other servers", bold=True)
        for line in _generic_lines(findings.generic):
            yield from _wrap(line, width, 5)
        yield ""
    yield from _verdict(findings, width)


def _is_root(findings: Findings) -> bool:
    return any(rights.user == "root" for rights in findings.rights)


def _check(check: Check, width: int) -> Iterator[str]:
    word, colour = _MARKS[check.ok]
    mark = click.style(word.ljust(_INDENT - 3), fg=colour)
    first, *rest = _wrap(f"{check.name}: {check.detail}", width - _INDENT, 0)
    yield f"  {mark} {first}"
    for line in rest:
        yield " " * _INDENT + line
    if check.fix and check.ok is not True:
        yield from _wrap(" " * _INDENT + f"fix: {check.fix}", width, _INDENT + 5)


def _server(planned: PlannedServer, traffic: Traffic | None, width: int) -> Iterator[str]:
    server, choice = planned.server, planned.choice
    state = f"pid {server.tgids[0]}" if server.running else "not running"
    if len(server.tgids) > 1:
        state += f" and {len(server.tgids) - 1} more"
    addresses = [f"port {port}" for port in server.ports] + list(server.sockets)
    facts = [f"{server.flavour} {server.version}".strip(), state, *addresses, server.program]
    number = f"{server.id}." if planned.traced else "-"
    yield from _wrap(f"  {number:<2} {', '.join(facts)}", width, 5)
    word = choice.attach_mode.name.lower()
    how = f"{word}{'' if choice.exact else ', not exact'}" if planned.traced else "cannot be traced"
    rows = [("attach", f"{how}: {choice.why}"), ("", choice.other)]
    rows.append(("seen", doctor_traffic.describe(traffic, planned)))
    if planned.boundary_cost_ns:
        rows.append(("cost", f"about {planned.boundary_cost_ns / 1000:.1f} us a query for probes"))
    for probe in planned.probes:
        where_found = f"{probe.role} at {probe.site.offset:#x} ({probe.symbol.table})"
        rows.append(("probe", f"{where_found}, {probe.site.reason}"))
    rows += [("note", note) for note in planned.notes]
    for name, text in rows:
        if text:
            yield from _wrap(f"     {name:<7}{text}", width, 12)


def _generic_to_json(server: Server) -> dict[str, Any]:
    return {
        "label": server.label,
        "executable": str(server.exe_path),
        "pids": list(server.tgids),
        "ports": list(server.ports),
        "udp_ports": list(server.udp_ports),
        "sockets": list(server.sockets),
        "restart": server.restart.how,
    }


def _generic_lines(servers: Sequence[Server]) -> Iterator[str]:
    """Yields a line for each server, of any length, not yet sanitised."""
    yield "  not traced unless asked for, with --generic or --pid: by thread name, without queries;"
    yield "  calls of clients here that run under 'qjoule run' are counted (mode tag, not exact)"
    for server in servers[:_GENERIC_SHOWN]:
        addresses = [f"port {port}" for port in server.ports]
        addresses += [f"UDP port {port}" for port in server.udp_ports]
        pids = f"pid {server.tgids[0]}"
        if len(server.tgids) > 1:
            pids += f" and {len(server.tgids) - 1} more"
        # If there is a port, the paths of unix sockets add little.
        facts = ", ".join([server.name, pids, *(addresses or server.sockets)])
        yield f"  -  {facts}; {server.restart.why}"
    if len(servers) > _GENERIC_SHOWN:
        yield f"  and {len(servers) - _GENERIC_SHOWN} more: see --json"


def _verdict(findings: Findings, width: int) -> Iterator[str]:
    if not findings.problems:
        traced = sum(planned.server.running for planned in findings.plan.traced)
        yield click.style(
            f"Ready: {traced} running server{'' if traced == 1 else 's'}.", fg="green"
        )
        return
    yield click.style("Not ready:", fg="red")
    for problem in findings.problems:
        yield from _wrap(f"  {problem}", width, 4)


def _wrap(text: str, width: int, indent: int) -> list[str]:
    safe = sanitise(text)
    return textwrap.wrap(
        safe,
        width,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    ) or [""]
