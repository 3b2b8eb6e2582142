# SPDX-License-Identifier: Apache-2.0
"""Where the figures come from and what is missing: lines for every screen and report."""

from __future__ import annotations

from collections.abc import Iterator

from qjoule.model.labels import BY_THREAD, SEVERAL
from qjoule.model.result import PARTS, Attribution, Domain, ServerCoverage, TracePart
from qjoule.reporters import changes, missing, power
from qjoule.reporters import format as fmt
from qjoule.reporters.missing import alarm

#: The effect of each idle policy, for people.
IDLE_POLICIES = {
    "separate": "idle energy is its own row",
    "even": "idle energy is spread evenly over the owners",
    "proportional": "idle energy is spread in proportion to dynamic energy",
}
_GRADES = {
    "measured": "measured by a hardware counter, then apportioned",
    "estimated": "estimated by a power model, not metered; then apportioned",
    "simulated": "simulated by a test source: these are not real joules",
    "none": "no energy source: energies are unknown",
}
_SHOWN = {BY_THREAD: "none (by thread)"}


def has_energy(attribution: Attribution) -> bool:
    """Whether there is a measured total at all; without one every energy is unknown."""
    return bool(attribution.domains) and attribution.energy_source.grade != "none"


def graded(attribution: Attribution) -> str:
    """What the total is, with its own error at 95 %, if it has one: `estimated ±90 %`."""
    return fmt.graded(attribution.energy_source.grade, attribution.energy_source.total_error)


def heading(attribution: Attribution) -> list[tuple[str, str]]:
    """What a reader must know before the first figure: (name, text) lines."""
    trace, source = attribution.trace, attribution.energy_source
    machine = " · ".join(filter(None, (trace.host, trace.cpu, trace.kernel)))
    span = f"{fmt.moment(trace.start)} · {fmt.duration(trace.duration_s * 1e9)}"
    lines = [
        ("trace", f"{span} · {machine}"),
        *(("", _part(part)) for part in attribution.parts),
        ("energy", _energy(attribution)),
    ]
    if source.reason:
        lines.append(("", source.reason))
    idle = attribution.policy.get("idle", "")
    lines.append(("idle", f"{idle}: {IDLE_POLICIES.get(idle, 'unknown policy')}"))
    if where := attribution.policy.get("where"):
        lines.append(("where", where))
    if words := alarm(attribution):
        lines.append(("ALARM", words))
    return fmt.safe_notes(lines)


def _part(part: TracePart) -> str:
    """One of several traces: its name, when and where it was recorded, and its total."""
    one = part.attribution
    seconds = fmt.duration(one.trace.duration_s * 1e9)
    total = fmt.UNKNOWN
    if has_energy(one):
        column = fmt.energy_column([one.main.measured_nj])
        total = f"{column.total} {column.unit} {graded(one)}"
    about = (f"{part.name}: {fmt.moment(one.trace.start)}", seconds, one.trace.host, total)
    return " · ".join(filter(None, about))


def footing(attribution: Attribution) -> list[tuple[str, str]]:
    """What a reader must know to judge the figures: (name, text) lines."""
    lines = [
        *(("domain", _other_domain(domain)) for domain in attribution.domains[1:]),
        *power.without_counter(attribution),
        ("attach", attach_modes(attribution)),
        ("coverage", _coverage(attribution)),
        *(("", _named(one)) for one in attribution.servers),
        ("loss", missing.loss(attribution)),
        ("complete", _completeness(attribution)),
        *(("servers", text) for text in changes.lines(attribution, hidden=False)),
    ]
    if windows := missing.windows(attribution):
        lines.append(("windows", windows))
    if anomalies := missing.anomalies(attribution):
        lines.append(("oddities", anomalies))
    lines.append(("model", power.model(attribution)))
    lines += power.calibration_flags(attribution)
    if attribution.model.memory:
        lines.append(("memory", attribution.model.memory))
    lines += [("", note) for note in attribution.model.notes]
    return fmt.safe_notes(lines)


def attach_modes(attribution: Attribution) -> str:
    """How query boundaries were found, per server: `mariadb:3306 symbol · postgres:5432 socket`."""
    found: dict[str, set[str]] = {}
    for row in attribution.tabled:
        if row.attach_mode:
            found.setdefault(row.server, set()).add(row.attach_mode)
    if len(found) > 1:
        found.pop(SEVERAL, None)  # a statement of several servers: each server has its own rows
    named = (
        f"{server or 'all servers'} {'+'.join(_SHOWN.get(name, name) for name in sorted(names))}"
        for server, names in sorted(found.items())
    )
    return fmt.one_line(" · ".join(named)) or fmt.UNKNOWN


def _coverage(attribution: Attribution) -> str:
    if attribution.only_threads:
        return "no server with queries: CPU time and energy are by thread name"
    return f"{fmt.share(attribution.coverage)} of the servers' CPU time has a named query"


def _named(one: ServerCoverage) -> str:
    queries, roles = (fmt.share(ns / one.cpu_ns) for ns in (one.queries_ns, one.roles_ns))
    return f"{one.server}: {fmt.share(one.named)} has a name: {queries} queries, {roles} roles"


def flag_letters(attribution: Attribution, shown: int) -> dict[str, str]:
    """A letter for each flag of the first `shown` rows, in order of appearance."""
    flags: dict[str, str] = {}
    letters = _letters()
    for row in (*attribution.rows[:shown], *attribution.fixed):
        for flag in row.flags:
            if flag not in flags:
                flags[flag] = next(letters)
    return flags


def _letters() -> Iterator[str]:
    for index in range(26):
        yield chr(ord("a") + index)
    while True:
        yield "*"


def _energy(attribution: Attribution) -> str:
    source = attribution.energy_source
    text = _GRADES.get(source.grade, f"{source.grade} (unknown grade)")
    if source.name and source.name not in (source.grade, "none"):
        text = f"{source.name}: {text}"
    if source.main_domain:
        others = [name for name in source.domains if name != source.main_domain]
        text += f" · {source.main_domain}"
        text += f" (also read: {', '.join(others)})" if others else ""
    return text


def _other_domain(domain: Domain) -> str:
    """A domain with its own ledger: it is not part of the total above it."""
    column = fmt.energy_column([domain.parts_nj.get(part, 0) for part in PARTS])
    parts = " + ".join(
        f"{part.replace('_', ' ')} {figure}"
        for part, figure in zip(PARTS, column.figures, strict=True)
    )
    return f"{domain.name} (its own ledger): {parts} = {column.total} {column.unit}"


def _completeness(attribution: Attribution) -> str:
    text = "yes" if attribution.trace.complete else "NO: the trace was cut off, its end is missing"
    if words := changes.untraced(attribution):
        text += f" · BUT {', '.join(words)}"
    if attribution.unattributed_windows:
        text += (
            f" · {fmt.count(attribution.unattributed_windows)} of {fmt.count(attribution.windows)}"
            " windows without a usable energy reading: their energy is in no row"
        )
    return text
