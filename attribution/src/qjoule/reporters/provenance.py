# SPDX-License-Identifier: Apache-2.0
"""Lines for every screen and report on the source of the figures, the split, and what is
missing."""

from __future__ import annotations

import math
from collections.abc import Iterator

from qjoule.machine.facts import MEMORY_BY_METER, NO_DRAM_ON_AMD, is_amd
from qjoule.model.labels import BY_THREAD, SEVERAL
from qjoule.model.result import PARTS, Attribution, Domain, Row, ServerCoverage, TracePart
from qjoule.reporters import format as fmt
from qjoule.reporters import missing, server_changes
from qjoule.reporters.labels import query_label
from qjoule.reporters.missing import alarm

_TIMES = "\N{MULTIPLICATION SIGN}"
_FACTORS = 3  #: lines of power factors under a table
_WEIGHTS = {"cpu_time": "weighted by CPU time", "counters": "weighted by hardware counters"}
#: Domains that are reported as unavailable without a counter: they use energy all the same, but no
#: row contains it.
_EXPECTED = ("dram",)
_NO_COUNTER = "no counter here; what it draws is in no row"
#: The effect of each idle policy, for people.
IDLE_POLICIES = {
    "separate": "idle energy is its own row",
    "even": "idle energy is spread evenly over the owners",
    "proportional": "idle energy is spread in proportion to dynamic energy",
}
_STOLEN_LEFT_OUT = "CPU time in which the host ran something else is no weight"
_GRADES = {
    "measured": "measured by a hardware counter, then apportioned",
    "estimated": "estimated by a power model, not metered; then apportioned",
    "simulated": "simulated by a test source: these are not real joules",
    "none": "no energy source: energies are unknown",
}
_MODE_NAMES = {BY_THREAD: "none (by thread)"}


def weights_used(attribution: Attribution) -> str:
    """Describes the weights of the split: calibration, and error on held-out data."""
    about = attribution.model
    return " · ".join(
        (
            _WEIGHTS.get(about.weight, about.weight),
            calibrated(attribution),
            *_held_out(attribution),
        )
    )


def calibrated(attribution: Attribution) -> str:
    """Says whether the model was calibrated; if so, on which machine and when."""
    about = attribution.model
    if not about.calibrated:
        return "not calibrated"
    return f"calibrated: {about.calibration}" if about.calibration else "calibrated"


def calibration_flags(attribution: Attribution) -> Iterator[tuple[str, str]]:
    """Yields (name, text) lines on how the calibration does not fit this trace."""
    for flag in attribution.model.calibration_flags:
        yield ("", f"the calibration {flag}")


def unavailable(attribution: Attribution) -> tuple[str, ...]:
    """Returns domains whose energy was not measured; empty if there is no energy at all."""
    measured = attribution.energy_source.domains
    return tuple(name for name in _EXPECTED if name not in measured) if measured else ()


def without_counter(attribution: Attribution) -> Iterator[tuple[str, str]]:
    """Yields (name, text) lines on domains that are in no row, and why."""
    source = attribution.energy_source
    for name, why in source.left_out.items():
        yield ("left out", f"{name}, which is in no row: {why}")
    for name in unavailable(attribution):
        if name not in source.left_out:
            amd = source.grade == "measured" and is_amd(attribution.trace.cpu)
            on_amd = f"{NO_DRAM_ON_AMD}; {MEMORY_BY_METER}"
            yield (name, f"unavailable: {on_amd if amd else _NO_COUNTER}")


def differs_from_weight(row: Row) -> bool:
    """Returns true if a row's power factor differs significantly from 1."""
    if row.power_factor is None:
        return False
    _, low, high = row.power_factor
    return low > 1 or high < 1


def power_factors(attribution: Attribution, shown: int) -> Iterator[tuple[str, str]]:
    """Yields (name, text) lines on shown rows whose power differs significantly from their weights,
    most energy first."""
    rows = [row for row in attribution.rows[:shown] if differs_from_weight(row)]
    for index, row in enumerate(rows[:_FACTORS]):
        yield (
            "draws" if not index else "",
            f"{power_factor(row)} what its weight says: {_short_label(row)}",
        )
    if len(rows) > _FACTORS:
        yield ("", f"and {fmt.count(len(rows) - _FACTORS)} more")


def power_factor(row: Row) -> str:
    """Formats a row's power factor with its 95 % interval: 1.24 times, [1.10, 1.40]."""
    if row.power_factor is None:
        return fmt.UNKNOWN
    value, low, high = (fmt.significant(number) for number in row.power_factor)
    return f"{value}{_TIMES} [{low}, {high}]"


def time_alone(row: Row) -> str:
    """Says how long a row ran alone, and how much narrower that makes its factor's interval."""
    if row.alone is None:
        return fmt.UNKNOWN
    alone_s, information_nats = row.alone
    times = fmt.significant(math.exp(information_nats))
    return f"{fmt.duration(alone_s * 1e9)}, which makes the factor {times}{_TIMES} as certain"


def _short_label(row: Row) -> str:
    label = query_label(row)
    return label if len(label) <= 60 else label[:59] + "…"


def _held_out(attribution: Attribution) -> Iterator[str]:
    about = attribution.model
    if about.held_out_errors:
        errors = (f"{name} {fmt.share(error)}" for name, error in about.held_out_errors.items())
        yield f"held-out error {', '.join(errors)}"
    elif about.held_out_error is not None:
        yield f"held-out error {fmt.share(about.held_out_error)}"


def has_energy(attribution: Attribution) -> bool:
    """Returns true if there is a total; without one every energy is unknown."""
    return bool(attribution.domains) and attribution.energy_source.grade != "none"


def graded(attribution: Attribution) -> str:
    """Returns the total's grade with its relative 95 % error, if any: `estimated ±90 %`."""
    return fmt.graded(attribution.energy_source.grade, attribution.energy_source.total_error)


def heading(attribution: Attribution) -> list[tuple[str, str]]:
    """Returns the (name, text) lines above the figures."""
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
    if attribution.policy.get("stolen"):
        recorded = attribution.stolen_recorded
        lines.append(("stolen", _STOLEN_LEFT_OUT if recorded else "not recorded: nothing left out"))
    if alarm_text := alarm(attribution):
        lines.append(("ALARM", alarm_text))
    return fmt.safe_notes(lines)


def _part(part: TracePart) -> str:
    """Describes one of several traces: its name, when and where it was recorded, and its total."""
    result = part.attribution
    seconds = fmt.duration(result.trace.duration_s * 1e9)
    total = fmt.UNKNOWN
    if has_energy(result):
        column = fmt.energy_column([result.main.measured_nj])
        total = f"{column.total} {column.unit} {graded(result)}"
    about = (f"{part.name}: {fmt.moment(result.trace.start)}", seconds, result.trace.host, total)
    return " · ".join(filter(None, about))


def footing(attribution: Attribution) -> list[tuple[str, str]]:
    """Returns the (name, text) lines below the figures."""
    lines = [
        *share_basis(attribution),
        *(("domain", _other_domain(domain)) for domain in attribution.domains[1:]),
        *without_counter(attribution),
        ("attach", attach_modes(attribution)),
        ("coverage", _coverage(attribution)),
        *(("", _named_share(server)) for server in attribution.servers),
        ("loss", missing.loss(attribution)),
        ("complete", _completeness(attribution)),
        *(("servers", text) for text in server_changes.server_changes(attribution, hidden=False)),
    ]
    if windows := missing.windows(attribution):
        lines.append(("windows", windows))
    if anomalies := missing.anomalies(attribution):
        lines.append(("oddities", anomalies))
    lines.append(("model", weights_used(attribution)))
    lines += calibration_flags(attribution)
    if attribution.model.memory:
        lines.append(("memory", attribution.model.memory))
    lines += [("", note) for note in attribution.model.notes]
    return fmt.safe_notes(lines)


def share_basis(attribution: Attribution) -> Iterator[tuple[str, str]]:
    """Yields a line that says of what the rows' shares are."""
    if has_energy(attribution) and attribution.main.owned_nj:
        joules = fmt.joules(attribution.main.owned_nj / 1e9)
        yield "shares", f"of the {joules} of all owners: without idle and residual"


def attach_modes(attribution: Attribution) -> str:
    """Lists the attach modes per server: `mariadb:3306 symbol · postgres:5432 socket`."""
    modes: dict[str, set[str]] = {}
    for row in attribution.tabled:
        if row.attach_mode:
            modes.setdefault(row.server, set()).add(row.attach_mode)
    if len(modes) > 1:
        modes.pop(SEVERAL, None)  # a statement of several servers: each server has its own rows
    texts = (
        f"{server or 'all servers'} {'+'.join(_MODE_NAMES.get(n, n) for n in sorted(used))}"
        for server, used in sorted(modes.items())
    )
    return fmt.one_line(" · ".join(texts)) or fmt.UNKNOWN


def _coverage(attribution: Attribution) -> str:
    if attribution.only_threads:
        return "no server with queries: CPU time and energy are by thread name"
    return f"{fmt.share(attribution.coverage)} of the servers' CPU time has a named query"


def _named_share(coverage: ServerCoverage) -> str:
    queries, roles = (
        fmt.share(ns / coverage.cpu_ns) for ns in (coverage.queries_ns, coverage.roles_ns)
    )
    return (
        f"{coverage.server}: {fmt.share(coverage.named)} has a name: "
        f"{queries} queries, {roles} roles"
    )


def flag_letters(attribution: Attribution, shown: int) -> dict[str, str]:
    """Returns a letter for each flag of the first `shown` rows, in order of appearance."""
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
    if source.cores:
        text += f" · between cores: {source.cores}"
    return text


def _other_domain(domain: Domain) -> str:
    """Describes a domain with its own ledger: it is not part of the total above it."""
    column = fmt.energy_column([domain.parts_nj.get(part, 0) for part in PARTS])
    parts = " + ".join(
        f"{part.replace('_', ' ')} {figure}"
        for part, figure in zip(PARTS, column.figures, strict=True)
    )
    return f"{domain.name} (its own ledger): {parts} = {column.total} {column.unit}"


def _completeness(attribution: Attribution) -> str:
    text = "yes" if attribution.trace.complete else "NO: the trace was cut off, its end is missing"
    if untraced := server_changes.untraced(attribution):
        text += f" · BUT {', '.join(untraced)}"
    if attribution.unattributed_windows:
        text += (
            f" · {fmt.count(attribution.unattributed_windows)} of {fmt.count(attribution.windows)}"
            " windows without a usable energy reading: their energy is in no row"
        )
    return text
