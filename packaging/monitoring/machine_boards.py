# SPDX-License-Identifier: Apache-2.0
"""Dashboards of machines: one, many, and who its queries work for."""

from __future__ import annotations

from panels import BY_VALUE, CHOSEN, COLUMNS, Dashboard, Panel, per_call, rate

NODE = Dashboard(
    "node",
    "qjoule: node",
    "Where one machine's joules go.",
    [("instance", "qjoule_node_joules_total")],
    [
        Panel(
            "Power by domain",
            "watt",
            [('qjoule:node_power:watts{instance=~"$instance"}', "{{domain}} ({{grade}})")],
            "Domains overlap: a package contains its cores. Never add them up.",
        ),
        Panel(
            "Power by owner",
            "watt",
            [
                (
                    "sum by (domain, kind) "
                    '(rate(qjoule_owner_joules_total{instance=~"$instance"}[$__rate_interval]))',
                    "{{domain}} {{kind}}",
                )
            ],
            "Within a domain the owners add up to its power.",
            stacked=True,
        ),
        Panel(
            "CPU time by owner",
            "none",
            [
                (
                    "sum by (kind, server) "
                    '(rate(qjoule_owner_cpu_seconds_total{instance=~"$instance"}[$__rate_interval]))',
                    "{{kind}} {{server}}",
                )
            ],
            "CPUs in use; all owners with idle are the machine's CPUs.",
            stacked=True,
        ),
        Panel(
            "Other processes that draw most",
            "watt",
            [
                (
                    "topk(10, sum by (name) (rate(qjoule_owner_joules_total{"
                    'kind="other_processes", instance=~"$instance"}[$__rate_interval])))',
                    "{{name}}",
                )
            ],
        ),
        Panel(
            "Lost CPU time",
            "percentunit",
            [('qjoule:lost_cpu:ratio{instance=~"$instance"}', "{{instance}}")],
            "CPU time whose owner was lost, as a share of busy CPU time.",
        ),
        Panel(
            "Lost records",
            "ops",
            [('qjoule:lost_records:rate5m{instance=~"$instance"}', "{{cause}}")],
        ),
        Panel(
            "Servers traced",
            "none",
            [('qjoule_server_traced{instance=~"$instance"}', "{{server}}")],
            "0: the server runs untraced, or has exited.",
            kind="stat",
        ),
        Panel(
            "CPU time of the agent",
            "none",
            [
                (
                    "sum by (process) "
                    '(rate(qjoule_agent_cpu_seconds_total{instance=~"$instance"}[$__rate_interval]))',
                    "{{process}}",
                )
            ],
            "Cores. What its hooks take is in the servers' own time.",
        ),
        Panel(
            "Share of all CPUs that tracing takes",
            "percentunit",
            [
                ('qjoule_budget_used_ratio{instance=~"$instance"}', "{{instance}} {{part}}"),
                ('qjoule_budget_ratio{instance=~"$instance"}', "{{instance}} budget"),
            ],
            "Hooks included, where the agent may measure them. The budget is `budget.cpu`.",
        ),
        Panel(
            "What is left out to keep the budget",
            "none",
            [('qjoule_budget_level{instance=~"$instance"}', "{{instance}}")],
            "0: nothing. 1: short windows and hardware counters. 2: also uprobes where sockets "
            "suffice.",
            kind="stat",
        ),
        Panel(
            "Memory of the agent",
            "bytes",
            [('qjoule_agent_resident_bytes{instance=~"$instance"}', "{{process}}")],
        ),
    ],
)

FLEET = Dashboard(
    "fleet",
    "qjoule: fleet",
    "Many machines: who draws most, and where a statement is dearer than elsewhere.",
    [],
    [
        Panel(
            "Power by machine",
            "watt",
            [
                (
                    "topk(20, sum by (instance, domain, grade) (qjoule:node_power:watts))",
                    "{{instance}} {{domain}} ({{grade}})",
                )
            ],
            "`estimated` and `measured` are never added up.",
        ),
        Panel(
            "Power of queries by server",
            "watt",
            [
                (
                    "topk(20, sum by (instance, server) (qjoule:query_power:watts))",
                    "{{instance}} {{server}}",
                )
            ],
        ),
        Panel(
            "Statements of all machines by power",
            "watt",
            [
                (
                    "topk(20, sum by (fingerprint) (qjoule:query_power:watts)) "
                    "* on (fingerprint) group_left (text) "
                    "topk by (fingerprint) (1, max by (fingerprint, text) (qjoule_query_info))",
                    "{{text}}",
                )
            ],
            kind="table",
            width=COLUMNS,
        ),
        Panel(
            "Dearest machine over the median, by statement",
            "none",
            [
                (
                    "topk(20, max by (fingerprint) (qjoule:query_joules_per_call:1h) / "
                    "quantile by (fingerprint) (0.5, qjoule:query_joules_per_call:1h))",
                    "{{fingerprint}}",
                )
            ],
            "Joules per call of the machine where a statement is dearest, over the median machine.",
        ),
        Panel(
            "Changes against last week",
            "none",
            [("topk(20, qjoule:query_joules_per_call:ratio_1w)", "{{instance}} {{fingerprint}}")],
        ),
        Panel(
            "Servers that run untraced",
            "none",
            [("count(qjoule_server_traced == 0) or vector(0)", "untraced")],
            kind="stat",
        ),
        Panel("CPU time of agents", "none", [("topk(20, qjoule:agent_cpu:cores)", "{{instance}}")]),
        Panel(
            "Share of the budget that tracing takes",
            "percentunit",
            [("topk(20, qjoule:budget_spent:ratio)", "{{instance}}")],
            "Of machines whose agent has a budget.",
        ),
    ],
)

TENANTS = Dashboard(
    "tenants",
    "qjoule: tags and tenants",
    "Joules by a tag that applications send (`tracing.tag`), such as their tenant, and by server.",
    [("instance", "qjoule_node_joules_total"), ("server", "qjoule_query_joules_total")],
    [
        Panel(
            "Power by tag",
            "watt",
            [(rate("joules", BY_VALUE, CHOSEN, "tag"), "{{server}} {{key}}={{value}}")],
            "`(none)` has no such tag; `(not by tag)` is not known by tag; `other` is beyond the "
            "bound on series.",
            stacked=True,
        ),
        Panel(
            "Joules in this time by tag",
            "joule",
            [
                (
                    f"sort_desc(sum by ({BY_VALUE}) "
                    f"(increase(qjoule_tag_joules_total{{{CHOSEN}}}[$__range])))",
                    "{{server}} {{key}}={{value}}",
                )
            ],
            kind="table",
        ),
        Panel(
            "Calls by tag",
            "ops",
            [(rate("calls", BY_VALUE, CHOSEN, "tag"), "{{server}} {{key}}={{value}}")],
        ),
        Panel(
            "Joules per call by tag",
            "joule",
            [(per_call("joules", BY_VALUE, CHOSEN, "tag"), "{{server}} {{key}}={{value}}")],
        ),
        Panel(
            "Power of queries by server",
            "watt",
            [(rate("joules", "instance, server", CHOSEN), "{{instance}} {{server}}")],
            "The tenants, where each has a server of its own.",
            stacked=True,
        ),
        Panel(
            "Joules in this time by server",
            "joule",
            [
                (
                    "sort_desc(sum by (instance, server) "
                    f"(increase(qjoule_query_joules_total{{{CHOSEN}}}[$__range])))",
                    "{{instance}} {{server}}",
                )
            ],
            kind="table",
        ),
    ],
)
