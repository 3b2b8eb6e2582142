# SPDX-License-Identifier: Apache-2.0
"""What to run on the host: uprobes, `perf record` and `perf stat`, as lines of a shell script.

Each server's module lists what its probes read, in the notation of the System V AMD64 ABI (figure
3.4) and Documentation/trace/uprobetracer.rst: `+8(%si)` is the word 8 bytes after the address in
the register. The string comes last.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from qjoule.api.servers import PlannedServer, Probe, registry
from qjoule_studies.import_perf.lines import TEXT_COMMAND
from qjoule_studies.import_perf.queries import by_server
from qjoule_studies.import_perf.scan import server_option
from qjoule_studies.import_perf.tasks import Imported

TRACEFS = "/sys/kernel/tracing"
EVENTS_FILE = f"{TRACEFS}/uprobe_events"
_MOUNT = f"[ -e {EVENTS_FILE} ] || mount -t tracefs tracefs {TRACEFS}"


@dataclass(frozen=True)
class Uprobe:
    """A line of `uprobe_events`."""

    event: str  #: with its group, which is the server's own: names hold for the whole machine
    is_return: bool
    file: str
    offset: int
    arguments: str

    @property
    def definition(self) -> str:
        kind = "r" if self.is_return else "p"
        place = f"{kind}:{self.path} {self.file}:{self.offset:#x}"
        return f"{place} {self.arguments}".rstrip()

    @property
    def path(self) -> str:
        """The event's name as tracefs writes it."""
        return self.event.replace(":", "/")


def uprobes_of(planned: PlannedServer) -> tuple[Uprobe, ...]:
    """The probes of a running server; none if uprobes cannot show its queries."""
    server = planned.server
    if not server.tgids or planned.library:
        return ()
    resolution = server.resolution
    probes: dict[str, Probe] = {probe.role: probe for probe in planned.probes}
    if resolution is not None:
        probes |= {probe.role: probe for probe in (*resolution.boundary, *resolution.names)}
    file = f"/proc/{server.tgids[0]}/exe"  # the file that runs, in whatever container
    support = by_server().get(registry.name_of(server.kind))
    wanted = support.hooks(planned) if support is not None else {}
    return tuple(
        Uprobe(
            f"qjoule_{server.tgids[0]}:{hook.event}_{server.id}",
            hook.is_return,
            file,
            probes[role].site.offset,
            hook.arguments,
        )
        for role, hook in wanted.items()
        if role in probes
    )


def commands(servers: Sequence[PlannedServer], *, seconds: int, counters: Sequence[str]) -> str:
    """A script for the host, with a comment for each thing that will be missing.

    `counters`: what the PMU `power` counts there, such as `energy-pkg`.
    """
    probes = [probe for planned in servers for probe in uprobes_of(planned)]
    lines = [
        "# On the traced host, as root. The clock is CLOCK_MONOTONIC, as in all traces of qjoule.",
        "# qjoule-perf.data holds all statements with their literals: keep it to yourself.",
        "umask 077",
        *_about(servers),
        *([_MOUNT] if probes else []),
        *(f"echo {shlex.quote(probe.definition)} >> {EVENTS_FILE}" for probe in probes),
        "# perf stat runs within perf record, which so tells when it began.",
        _record(probes, seconds, counters),
        *(f"echo -:{probe.path} >> {EVENTS_FILE}" for probe in probes),
        "# Where perf is missing, import a text that was made where it is:",
        f"#   LC_ALL=C {TEXT_COMMAND} -i qjoule-perf.data > qjoule-perf.txt",
        "# Then, not as root: give the files to whoever imports (chown).",
        _import(servers, counted=bool(counters)),
    ]
    return "\n".join(lines) + "\n"


def _about(servers: Sequence[PlannedServer]) -> list[str]:
    lines = []
    for planned in servers:
        server = planned.server
        if not server.tgids:
            continue
        why = ""
        if not uprobes_of(planned):
            problem = server.resolution.problem if server.resolution else ""
            why = f": no probes, its time is told by thread ({problem or 'it has none'})"
        lines.append(f"# {_shown(server.label)}, process {server.tgids[0]}{_shown(why)}")
    return lines


def _record(probes: Sequence[Uprobe], seconds: int, counters: Sequence[str]) -> str:
    events = ["sched:sched_switch", *(probe.event for probe in probes)]
    events_option = " ".join(f"-e {event}" for event in events)
    record = f"perf record -a -k CLOCK_MONOTONIC -m 2048 {events_option} -o qjoule-perf.data"
    if not counters:
        return f"{record} -- sleep {seconds}   # no energy counters here: joules are estimated"
    events_option = ",".join(f"power/{counter}/" for counter in counters)
    stat = f"perf stat -a --per-socket -I 20 -x, -e {events_option} -o qjoule-energy.csv"
    return f"{record} -- {stat} -- sleep {seconds}"


def _import(servers: Sequence[PlannedServer], *, counted: bool) -> str:
    named = " ".join(
        f"--server {shlex.quote(server_option(imported_of(planned)))}"
        for planned in servers
        if planned.server.tgids
    )
    energy = "qjoule-energy.csv" if counted else "estimated"
    return f"qjoule import perf qjoule-perf.data --energy {energy} {named} -o imported.qjoule"


def imported_of(planned: PlannedServer) -> Imported:
    """The `--server` value for a running server."""
    server = planned.server
    assert server.tgids
    return Imported(
        server.id,
        server.flavour,
        frozenset(server.tgids[:1]),
        _shown(server.label)[:200],
        _shown(server.version).replace(",", " ")[:40],
        planned.pool,
    )


def _shown(text: str) -> str:
    """Makes any process name safe for one line of the script."""
    return "".join(character if character.isprintable() else "?" for character in text)
