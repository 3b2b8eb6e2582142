# SPDX-License-Identifier: Apache-2.0
"""Checks that the keys of a plan fit together, and that the workload has its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qjoule.errors import UsageError
from qjoule.studies import plan as plans
from qjoule.studies.plan import Plan
from qjoule.studies.strict_yaml import Section
from qjoule.studies.workload import Value

#: Numbers of a run that replications may go by.
RESPONSES = (
    "j_per_operation",
    "energy_j",
    "queries_j",
    "power_w",
    "wall_s",
    "throughput",
    "latency_ns_mean",
    "latency_ns_p50",
    "latency_ns_p95",
    "latency_ns_p99",
    "server_cpu_s",
)
#: Those that are known without recording.
SEEN_BY_CLIENT = RESPONSES[4:10]


def check_together(made: Plan, top: Section) -> None:
    """Raises `UsageError` at the line of the key that does not fit the others."""
    for key, what in (*_of_server(made), *_of_factors(made), *_of_times(made)):
        raise (top.get(key) or top.item).wrong(what)


def check_options(plan: Plan, workload: str, defaults: Mapping[str, Value]) -> None:
    """Every option and factor is one that the workload has, and of its type.

    Raises `UsageError`.
    """
    given: dict[str, list[Value]] = {name: [value] for name, value in plan.options.items()}
    for factor in plan.factors:
        if not plans.is_of_machine(factor.name):
            given[factor.name] = list(factor.levels)
    for name, values in given.items():
        if name not in defaults:
            raise UsageError(
                f"{workload} has no option {name!r}; it has {', '.join(sorted(defaults))} "
                f"(a setting of the server is {plans.SETTING}{name})"
            )
        kind = type(defaults[name])
        for value in values:
            if not _fits(value, kind):
                raise UsageError(f"{name}: {value!r} is no {_KINDS[kind]}, as {workload} wants")


_KINDS: dict[type, str] = {str: "word", int: "whole number", float: "number", bool: "true or false"}


def _fits(value: Value, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind


_Wrong = Iterator[tuple[str, str]]  #: the key, and what is wrong


def _of_server(made: Plan) -> _Wrong:
    factor = made.factor(plans.SERVER)
    if made.target and (made.server or factor):
        yield "target", "the study starts a server itself ('server'): give only one of both"
    if not made.target and not made.server and not factor:
        yield "", "say which server: 'server: NAME' is started, 'target:' runs already"
    if made.server and factor:
        yield "server", "is a factor too: leave it out here"
    if made.target and made.settings:
        yield "settings", "are of servers that the study starts; the target runs already"
    for server, settings in made.settings.items():
        if server not in made.servers:
            yield "settings", f"{server} is not started; started: {', '.join(made.servers)}"
        for name in settings:
            if made.factor(plans.SETTING + name):
                yield "settings", f"{name} is a factor too: leave it out here"


def _of_factors(made: Plan) -> _Wrong:
    for factor in made.factors:
        if made.target and factor.name.startswith(plans.SETTING):
            yield "factors", f"{factor.name}: only a server that the study starts can be set"
        if factor.name in made.options:
            yield "options", f"{factor.name} is a factor too: leave it out here"
    for name in made.design.whole_plots:
        if not made.factor(name):
            yield "design", f"whole_plots: there is no factor {name}"


def _of_times(made: Plan) -> _Wrong:
    times = made.replications
    if made.design.blocks > times.least:
        yield (
            "design",
            f"{made.design.blocks} blocks need as many replications; there are {times.least}",
        )
    unknown = made.record.without_energy and times.response not in SEEN_BY_CLIENT
    if times.until is not None and unknown:
        allowed = ", ".join(SEEN_BY_CLIENT)
        yield "replications", f"{times.response} is unknown without energy; response: {allowed}"
