# SPDX-License-Identifier: Apache-2.0
"""Dashboards of statements: those of a server, and one of them."""

from __future__ import annotations

from panels import (
    BY_STATEMENT,
    CHOSEN,
    COLUMNS,
    ONE_STATEMENT,
    WITH_TEXT,
    Dashboard,
    Panel,
    per_call,
    rate,
)

SERVER = Dashboard(
    "server",
    "qjoule: server",
    "Which statements of a server draw most.",
    [("instance", "qjoule_node_joules_total"), ("server", "qjoule_query_joules_total")],
    [
        Panel(
            "Statements by power",
            "watt",
            [
                (
                    f"topk(20, sum by (instance, {BY_STATEMENT}) "
                    f"(rate(qjoule_query_joules_total{{{CHOSEN}}}[$__range]))) {WITH_TEXT}",
                    "{{text}}",
                )
            ],
            "Statements beyond the bound are counted in the fingerprint `other`.",
            kind="table",
            width=COLUMNS,
        ),
        Panel(
            "Power",
            "watt",
            [
                (
                    "sum by (server, kind) "
                    f'(rate(qjoule_owner_joules_total{{kind=~"queries|background", {CHOSEN}}}'
                    "[$__rate_interval]))",
                    "{{server}} {{kind}}",
                )
            ],
            stacked=True,
        ),
        Panel(
            "Calls",
            "ops",
            [
                (
                    rate("calls", "server", CHOSEN),
                    "{{server}}",
                )
            ],
        ),
        Panel(
            "Joules per call",
            "joule",
            [
                (
                    per_call("joules", "server", CHOSEN),
                    "{{server}}",
                )
            ],
        ),
        Panel(
            "Coverage",
            "percentunit",
            [(f"qjoule_coverage_ratio{{{CHOSEN}}}", "{{server}}")],
            "Share of the server's CPU time that has a named owner.",
        ),
        Panel(
            "Latency",
            "s",
            [
                (
                    f"histogram_quantile({q}, sum by (le, server) "
                    f"(rate(qjoule_query_latency_seconds_bucket{{{CHOSEN}}}[$__rate_interval])))",
                    f"{{{{server}}}} p{round(q * 100)}",
                )
                for q in (0.5, 0.95, 0.99)
            ],
        ),
        Panel(
            "Statements without a series of their own",
            "ops",
            [
                (
                    f"rate(qjoule_folded_shapes_total{{{CHOSEN}}}[$__rate_interval])"
                    f" or 0 * qjoule_server_info{{{CHOSEN}}}",
                    "{{server}}",
                )
            ],
            "Counted in `other`: raise `metrics.shapes` if there are many.",
        ),
    ],
)

QUERY = Dashboard(
    "query",
    "qjoule: statement",
    "One statement, today and a week ago.",
    [
        ("instance", "qjoule_node_joules_total"),
        ("server", "qjoule_query_joules_total"),
        ("fingerprint", "qjoule_query_joules_total"),
    ],
    [
        Panel(
            "Statement",
            "none",
            [(f"qjoule_query_info{{{ONE_STATEMENT}}}", "{{text}}")],
            "Ids of other tools (queryid, digest) are labels of this metric where they are known.",
            kind="table",
            width=COLUMNS,
        ),
        Panel(
            "Joules per call",
            "joule",
            [
                (f"qjoule:query_joules_per_call:1h{{{ONE_STATEMENT}}}", "{{instance}} last hour"),
                (
                    f"qjoule:query_joules_per_call:1h{{{ONE_STATEMENT}}} offset 1w",
                    "{{instance}} a week ago",
                ),
            ],
        ),
        Panel(
            "Joules per call over a week ago",
            "none",
            [(f"qjoule:query_joules_per_call:ratio_1w{{{ONE_STATEMENT}}}", "{{instance}}")],
            "Only where both hours had at least 100 calls.",
        ),
        Panel("Power", "watt", [(f"qjoule:query_power:watts{{{ONE_STATEMENT}}}", "{{instance}}")]),
        Panel("Calls", "ops", [(f"qjoule:query_calls:rate5m{{{ONE_STATEMENT}}}", "{{instance}}")]),
        Panel(
            "CPU time per call",
            "s",
            [
                (
                    per_call("cpu_seconds", "instance", ONE_STATEMENT),
                    "{{instance}}",
                )
            ],
        ),
        Panel(
            "Latency",
            "s",
            [
                (
                    f"histogram_quantile({q}, sum by (le) "
                    f"(rate(qjoule_query_latency_seconds_bucket{{{ONE_STATEMENT}}}[$__rate_interval])))",
                    f"p{round(q * 100)}",
                )
                for q in (0.5, 0.95, 0.99)
            ],
        ),
    ],
)
