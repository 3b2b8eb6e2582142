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
        parts = [replace(part, attribution=_with_host(part.attribution)) for part in parts]
    names = common_domains([part.attribution for part in parts])
    provenance = (source_of(parts, names), model_of(parts, names, notes))
    if names:
        parts = [replace(part, attribution=in_domains(part.attribution, names)) for part in parts]
    results = [part.attribution for part in parts]
    domains = tuple(_domain(name, results) for name in names)
    # Rows of totals that are not equally certain have no common error.
    same_total = len({result.energy_source.total_error for result in results}) == 1
    rows, fixed = in_order(_rows(results, energy_known=bool(domains), same_total=same_total))
    combined = Attribution(
        trace=trace_of([trace.trace for trace in results]),
        energy_source=provenance[0],
        policy=dict(results[0].policy),
        model=provenance[1],
        domains=domains,
        rows=rows,
        fixed=fixed,
        coverage=_coverage(results),
        servers=_servers(results),
        windows=sum(result.windows for result in results),
        unattributed_windows=sum(result.unattributed_windows for result in results),
        window_causes=counts(result.window_causes for result in results),
        anomalies=counts(result.anomalies for result in results),
        parts=tuple(parts),
    )
    return combined if same_total else with_total_error(combined)


def common_domains(results: Sequence[Attribution]) -> tuple[str, ...]:
    """Domains that every trace has measured; the first is the one that rows are about."""
    common = [
        domain.name
        for domain in results[0].domains
        if all(domain.name in {other.name for other in result.domains} for result in results)
    ]
    common.sort()
    if not common:
        return ()
    main = main_domain(common)
    return (main, *(name for name in common if name != main))


def in_domains(attribution: Attribution, names: Sequence[str]) -> Attribution:
    """The attribution with only these domains; its rows are about the first of them."""
    old_main = attribution.domains[0].name
    by_name = {domain.name: domain for domain in attribution.domains}
    domains = tuple(by_name[name] for name in names)
    if domains == attribution.domains:
        return attribution
    rows = [_about_domain(row, old_main, domains) for row in attribution.rows]
    fixed = [_about_domain(row, old_main, domains) for row in attribution.fixed]
    queries, others = in_order([*rows, *fixed])
    source = attribution.energy_source
    errors = {**source.other_errors, old_main: source.total_error}
    source = replace(
        source,
        domains=tuple(names),
        main_domain=names[0],
        total_error=errors.get(names[0], 0.0),
        other_errors={name: errors[name] for name in names[1:] if errors.get(name)},
    )
    return replace(attribution, domains=domains, rows=queries, fixed=others, energy_source=source)


def _about_domain(row: Row, old_main: str, domains: Sequence[Domain]) -> Row:
    """Changes a row whose main domain was `old_main` to be about the first of `domains`.

    Intervals of shares are known only of the main domain.
    """
    names = [domain.name for domain in domains]
    energy = row.energy_by_domain_nj | {old_main: row.energy_nj}
    ends = row.energy_by_domain_ci95 | {old_main: row.energy_nj_ci95}
    errors: dict[str, RowErrors] = dict(row.error_by_domain)
    if row.error is not None:
        errors[old_main] = row.error
    main, others = names[0], [name for name in names[1:] if name in energy]
    energy_nj = energy.get(main, 0)
    owned_nj = domains[0].owned_nj if row.kind in OWNERS else 0
    return replace(
        row,
        energy_nj=energy_nj,
        energy_nj_ci95=ends.get(main, (float(energy_nj), float(energy_nj))),
        share=energy_nj / owned_nj if owned_nj else None,
        share_ci95=row.share_ci95 if main == old_main else None,
        share_error=row.share_error if main == old_main else None,
        energy_by_domain_nj={name: energy[name] for name in others},
        energy_by_domain_ci95={name: ends[name] for name in others if name in ends},
        shared_nj=row.shared_nj if main == old_main else None,
        power_factor=row.power_factor if main == old_main else None,
        alone=row.alone if main == old_main else None,
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
        servers=tuple(
            replace(server, server=named(server.server)) for server in attribution.servers
        ),
    )


def _rows(results: Sequence[Attribution], *, energy_known: bool, same_total: bool) -> list[Row]:
    """Joins rows of equal kind and keys, with their shares of the whole energy."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[list[Row]]] = {}
    for number, result in enumerate(results):
        for row in (*result.rows, *result.fixed):
            rows_of_traces = groups.setdefault(
                (row.kind, tuple(sorted(row.keys.items()))), [[] for _ in results]
            )
            rows_of_traces[number].append(row)
    rows, parts = [], []
    kinds_with_keys = {kind for kind, keys in groups if keys}
    for (kind, keys), rows_of_traces in groups.items():
        same_rows = [row for rows_of_one in rows_of_traces for row in rows_of_one]
        if (
            not keys
            and kind in kinds_with_keys
            and not any(row.cpu_ns or row.energy_nj for row in same_rows)
        ):
            continue  # the placeholder row of a part without CPU time and energy
        row = (
            same_rows[0] if len(same_rows) == 1 else added(same_rows, same_rows[0].keys, apart=True)
        )
        rows.append(row if energy_known else _without_energy(row))
        parts.append(rows_of_traces)
    if not energy_known:
        return rows
    return of_several_traces(rows, parts, [result.main for result in results], one_total=same_total)


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


def _domain(name: str, results: Sequence[Attribution]) -> Domain:
    same_domain = [domain for result in results for domain in result.domains if domain.name == name]
    parts = {part: sum(domain.parts_nj[part] for domain in same_domain) for part in PARTS}
    return Domain(name, sum(domain.measured_nj for domain in same_domain), parts)


def _coverage(results: Sequence[Attribution]) -> float:
    """Mean weighted by the CPU time of each trace's servers that have queries."""
    served_ns = [_served_ns(result) for result in results]
    total = sum(served_ns)
    named = sorted(result.coverage * ns for result, ns in zip(results, served_ns, strict=True))
    return sum(named) / total if total else 0.0


def _served_ns(result: Attribution) -> int:
    only_roles = result.only_roles
    return sum(
        row.cpu_ns
        for row in (*result.rows, *result.fixed)
        if row.kind in ("queries", "background") and row.server not in only_roles
    )


def _servers(results: Sequence[Attribution]) -> tuple[ServerCoverage, ...]:
    sums: dict[str, list[int]] = {}
    for server in (server for coverage_sums in results for server in coverage_sums.servers):
        sums_of_server = sums.setdefault(server.server, [0, 0, 0])
        for column, ns in enumerate((server.cpu_ns, server.queries_ns, server.roles_ns)):
            sums_of_server[column] += ns
    return tuple(ServerCoverage(name, *sums[name]) for name in sorted(sums))
