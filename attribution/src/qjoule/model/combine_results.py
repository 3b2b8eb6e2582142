# SPDX-License-Identifier: Apache-2.0
"""Joins several traces: rows of equal keys are added up, and so is every total.

A request that used several servers is in the trace of each; its tag identifies it, so its joules
are summed. Owners that belong to one machine (idle, kernel, background) are summed by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qjoule.model.combined_provenance import counts, model_of, source_of, trace_of
from qjoule.model.interval import RowErrors
from qjoule.model.labels import OTHERS_OF, SEVERAL
from qjoule.model.ledger import main_domain
from qjoule.model.result import (
    OWNERS,
    PARTS,
    Attribution,
    Domain,
    Row,
    ServerCoverage,
    TracePart,
)
from qjoule.model.row_sums import added, in_order
from qjoule.model.same_total import with_total_error
from qjoule.model.shares import of_several_traces


def combine_results(parts: Sequence[TracePart], notes: Sequence[str] = ()) -> Attribution:
    """The sum of attributions with the same policy; their order affects only the order of names.

    If there are several hosts, servers are named with them. Energy is summed in the domains that
    all traces have. If there is none, the sum's energy is unknown and each part keeps its own.
    Raises `ValueError` without parts, or if the policies differ.
    """
    if not parts:
        raise ValueError("nothing to add up")
    policies = {tuple(sorted(part.attribution.policy.items())) for part in parts}
    if len(policies) > 1:
        raise ValueError("parts that were made with different policies cannot be added up")
    hosts = {part.attribution.trace.host for part in parts}
    if len(hosts) > 1:
        parts = [replace(p, attribution=_with_host(p.attribution)) for p in parts]
    names = common_domains([part.attribution for part in parts])
    about = (source_of(parts, names), model_of(parts, names, notes))
    if names:
        parts = [replace(p, attribution=in_domains(p.attribution, names)) for p in parts]
    found = [part.attribution for part in parts]
    domains = tuple(_domain(name, found) for name in names)
    # Rows of totals that are not equally certain have no common error.
    one_total = len({one.energy_source.total_error for one in found}) == 1
    rows, fixed = in_order(_rows(found, known=bool(domains), one_total=one_total))
    whole = Attribution(
        trace=trace_of([one.trace for one in found]),
        energy_source=about[0],
        policy=dict(found[0].policy),
        model=about[1],
        domains=domains,
        rows=rows,
        fixed=fixed,
        coverage=_coverage(found),
        servers=_servers(found),
        windows=sum(one.windows for one in found),
        unattributed_windows=sum(one.unattributed_windows for one in found),
        window_causes=counts(one.window_causes for one in found),
        anomalies=counts(one.anomalies for one in found),
        parts=tuple(parts),
    )
    return whole if one_total else with_total_error(whole)


def common_domains(found: Sequence[Attribution]) -> tuple[str, ...]:
    """Domains that every trace has energy of, the domain of the rows first."""
    common = [
        domain.name
        for domain in found[0].domains
        if all(domain.name in {other.name for other in one.domains} for one in found)
    ]
    common.sort()
    if not common:
        return ()
    main = main_domain(common)
    return (main, *(name for name in common if name != main))


def in_domains(attribution: Attribution, names: Sequence[str]) -> Attribution:
    """The attribution with only these domains; its rows are about the first of them."""
    before = attribution.domains[0].name
    by_name = {domain.name: domain for domain in attribution.domains}
    domains = tuple(by_name[name] for name in names)
    if domains == attribution.domains:
        return attribution
    rows = [_combined_provenance(row, before, domains) for row in attribution.rows]
    fixed = [_combined_provenance(row, before, domains) for row in attribution.fixed]
    queries, others = in_order([*rows, *fixed])
    source = attribution.energy_source
    errors = {**source.other_errors, before: source.total_error}
    source = replace(
        source,
        domains=tuple(names),
        main_domain=names[0],
        total_error=errors.get(names[0], 0.0),
        other_errors={name: errors[name] for name in names[1:] if errors.get(name)},
    )
    return replace(attribution, domains=domains, rows=queries, fixed=others, energy_source=source)


def _combined_provenance(row: Row, before: str, domains: Sequence[Domain]) -> Row:
    """Changes a row whose main domain was `before` to be about the first of `domains`.

    Intervals of shares are known only of the main domain.
    """
    names = [domain.name for domain in domains]
    energy = row.energy_by_domain_nj | {before: row.energy_nj}
    ends = row.energy_by_domain_ci95 | {before: row.energy_nj_ci95}
    errors: dict[str, RowErrors] = dict(row.error_by_domain)
    if row.error is not None:
        errors[before] = row.error
    main, others = names[0], [name for name in names[1:] if name in energy]
    energy_nj = energy.get(main, 0)
    owned_nj = domains[0].owned_nj if row.kind in OWNERS else 0
    return replace(
        row,
        energy_nj=energy_nj,
        energy_nj_ci95=ends.get(main, (float(energy_nj), float(energy_nj))),
        share=energy_nj / owned_nj if owned_nj else None,
        share_ci95=row.share_ci95 if main == before else None,
        share_error=row.share_error if main == before else None,
        energy_by_domain_nj={name: energy[name] for name in others},
        energy_by_domain_ci95={name: ends[name] for name in others if name in ends},
        shared_nj=row.shared_nj if main == before else None,
        power_factor=row.power_factor if main == before else None,
        alone=row.alone if main == before else None,
        error=errors.get(main),
        error_by_domain={name: errors[name] for name in others if name in errors},
    )


def _with_host(attribution: Attribution) -> Attribution:
    """Adds the host to each server's name, because servers of two machines may have the same
    name."""

    def named(server: str) -> str:
        host = attribution.trace.host or "(unknown host)"
        return f"{server} on {host}" if server and server != SEVERAL else server

    def renamed(row: Row) -> Row:
        of_server = OTHERS_OF if row.not_selected else "server"
        keys = {key: named(v) if key == of_server else v for key, v in row.keys.items()}
        return replace(row, keys=keys, server=named(row.server))

    return replace(
        attribution,
        rows=tuple(renamed(row) for row in attribution.rows),
        fixed=tuple(renamed(row) for row in attribution.fixed),
        servers=tuple(replace(one, server=named(one.server)) for one in attribution.servers),
    )


def _rows(found: Sequence[Attribution], *, known: bool, one_total: bool) -> list[Row]:
    """Joins rows of equal kind and keys, with their shares of the whole energy."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[list[Row]]] = {}
    for number, one in enumerate(found):
        for row in (*one.rows, *one.fixed):
            of_traces = groups.setdefault(
                (row.kind, tuple(sorted(row.keys.items()))), [[] for _ in found]
            )
            of_traces[number].append(row)
    rows, parts = [], []
    named = {kind for kind, keys in groups if keys}
    for (kind, keys), of_traces in groups.items():
        same = [row for rows_of_one in of_traces for row in rows_of_one]
        if not keys and kind in named and not any(row.cpu_ns or row.energy_nj for row in same):
            continue  # a placeholder for a part that nobody ran for in that trace
        row = same[0] if len(same) == 1 else added(same, same[0].keys, apart=True)
        rows.append(row if known else _without_energy(row))
        parts.append(of_traces)
    if not known:
        return rows
    return of_several_traces(rows, parts, [one.main for one in found], one_total=one_total)


def _without_energy(row: Row) -> Row:
    return replace(
        row,
        energy_nj=0,
        energy_nj_ci95=(0.0, 0.0),
        share=None,
        share_ci95=None,
        share_error=None,
        energy_by_domain_nj={},
        energy_by_domain_ci95={},
        power_factor=None,
        shared_nj=None,
        error=None,
        error_by_domain={},
    )


def _domain(name: str, found: Sequence[Attribution]) -> Domain:
    same = [domain for one in found for domain in one.domains if domain.name == name]
    parts = {part: sum(domain.parts_nj[part] for domain in same) for part in PARTS}
    return Domain(name, sum(domain.measured_nj for domain in same), parts)


def _coverage(found: Sequence[Attribution]) -> float:
    """Mean weighted by the CPU time of each trace's servers that have queries."""
    spent = [_served_ns(one) for one in found]
    total = sum(spent)
    named = sorted(one.coverage * ns for one, ns in zip(found, spent, strict=True))
    return sum(named) / total if total else 0.0


def _served_ns(one: Attribution) -> int:
    only_roles = one.only_roles
    return sum(
        row.cpu_ns
        for row in (*one.rows, *one.fixed)
        if row.kind in ("queries", "background") and row.server not in only_roles
    )


def _servers(found: Sequence[Attribution]) -> tuple[ServerCoverage, ...]:
    sums: dict[str, list[int]] = {}
    for server in (server for one in found for server in one.servers):
        one = sums.setdefault(server.server, [0, 0, 0])
        for place, ns in enumerate((server.cpu_ns, server.queries_ns, server.roles_ns)):
            one[place] += ns
    return tuple(ServerCoverage(name, *sums[name]) for name in sorted(sums))
