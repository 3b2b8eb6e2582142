# SPDX-License-Identifier: Apache-2.0
"""The plan's file: reads a plan from TOML, checks that its keys fit together, and writes one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from qjoule.api import UsageError
from qjoule.api.command import convert, read_file, to_key, to_toml
from qjoule_studies import plan as plans
from qjoule_studies.plan import Plan
from qjoule_studies.servers import products
from qjoule_studies.workload import Value

#: Responses that are known without recording.
SEEN_BY_CLIENT = get_args(plans.Response)[4:10]
#: Options of `qjoule record` that the study sets itself.
_OURS = ("-o", "--output", "-d", "--duration", "--pid", "--energy", "--")


def check_plan(plan: Plan, file: str) -> None:
    """Raises `UsageError` with the first key that does not fit the others."""
    for check in (_of_server, _of_target, _of_factors, _of_design, _of_times, _of_recording):
        for key, problem in check(plan):
            raise UsageError(f"{file}: {key}: {problem}" if key else f"{file}: {problem}")


def check_options(plan: Plan, workload: str, defaults: Mapping[str, Value]) -> None:
    """Every option and factor is one that the workload has, and of its type.

    Raises `UsageError`.
    """
    values_of: dict[str, list[Value]] = {name: [value] for name, value in plan.options.items()}
    for name, levels in plan.factors.items():
        if not plans.is_of_machine(name):
            values_of[name] = list(levels)
    for name, values in values_of.items():
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


def _of_server(plan: Plan) -> _Wrong:
    is_factor = plans.SERVER in plan.factors
    if plan.target and (plan.server or is_factor):
        yield "target", "the study starts a server itself ('server'): give only one of both"
    if not plan.target and not plan.server and not is_factor:
        yield "", "say which server: server = 'NAME' is started, [target] runs already"
    if plan.server and is_factor:
        yield "server", "is a factor too: leave it out here"
    if plan.target and plan.settings:
        yield "settings", "are of servers that the study starts; the target runs already"
    for server, settings in plan.settings.items():
        if server not in plan.servers:
            yield "settings", f"{server!r} is not started; started: {', '.join(plan.servers)}"
        for name in settings:
            if plans.SETTING + name in plan.factors:
                yield "settings", f"{name!r} is a factor too: leave it out here"


def _of_target(plan: Plan) -> _Wrong:
    target = plan.target or plans.Running(pid=1)
    if not (target.pid or target.flavour or target.port or target.socket):
        yield "target", "say which server: give pid, flavour, port or socket"
    if target.flavour and target.flavour not in products():
        yield "target.flavour", f"must be one of {', '.join(products())}, not {target.flavour!r}"


def _of_factors(plan: Plan) -> _Wrong:
    for name, levels in plan.factors.items():
        key = f"factors.{to_key(name)}"
        if name in ("", plans.SETTING):
            yield "factors", "a factor needs a name"
        if plan.target and name.startswith(plans.SETTING):
            yield key, "only a server that the study starts can be set"
        if name in plan.options:
            yield f"options.{to_key(name)}", "is a factor too: leave it out here"
        for index, level in enumerate(levels):
            if level in levels[:index]:  # 1, 1.0 and true are one level: runs would look the same
                yield key, f"has the level {level!r} twice"
            if name in (plans.SERVER, plans.GOVERNOR) and not isinstance(level, str):
                yield key, "its levels are names: give texts"
            is_number = _fits(level, float)
            in_numbers = name in plans.CPU_FACTORS and name != plans.GOVERNOR
            if in_numbers and not (is_number and 1 <= float(level) <= 100_000):
                yield key, f"must be numbers from 1 to 100000, not {level!r}"


def _of_design(plan: Plan) -> _Wrong:
    design = plan.design
    if design.kind == "full" and design.generators:
        yield "design", "a full design has no generators: leave them out, or kind = 'fractional'"
    if design.kind == "fractional" and not design.generators:
        yield "design", "a fractional design needs generators, such as ['C=AB']"
    for name in design.whole_plots:
        if name not in plan.factors:
            yield "design.whole_plots", f"there is no factor {name!r}"
    if design.blocks > (least := plan.replications.least):
        yield "design.blocks", f"{design.blocks} need as many replications; there are {least}"


def _of_times(plan: Plan) -> _Wrong:
    times, control = plan.replications, plan.control
    if times.until is None:
        if times != plans.Replications(times.least):
            yield "replications", "'most' and 'response' go with 'until': give that, or one number"
    elif times.least < 2:
        yield "replications", "an interval needs two runs: give least = 2 or more"
    elif plan.record.without_energy and times.response not in SEEN_BY_CLIENT:
        allowed = ", ".join(SEEN_BY_CLIENT)
        yield "replications", f"{times.response} is unknown without energy; response: {allowed}"
    if times.most < times.least:
        yield "replications", f"most ({times.most}) is less than least ({times.least})"
    if control.tries < control.last:
        yield "control", f"tries ({control.tries}) is less than last ({control.last})"


def _of_recording(plan: Plan) -> _Wrong:
    for word in plan.record.options:
        if word.partition("=")[0] in _OURS or word[:2] in ("-o", "-d"):
            yield "record.options", f"{word!r} is set by the study itself"


FILE = "plan.toml"  #: in a study's directory


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises `UsageError`, which names the key and what is allowed."""
    if path.suffix in (".yaml", ".yml"):
        raise UsageError(
            f"{path}: plans are TOML now, such as studies/examples/factorial-nosql/small.toml"
        )
    return plan_of(read_file(path), str(path))


def plan_of(document: Mapping[str, Any], file: str) -> Plan:
    """The plan in a file's tables. Raises `UsageError`."""
    if isinstance(times := document.get("replications"), int):
        document = {**document, "replications": {"least": times}}
    plan = convert(document, Plan, file)
    check_plan(plan, file)
    return plan


def to_text(plan: Plan) -> str:
    """A file that reads as an equal plan."""
    tables = msgspec.to_builtins(plan)
    return to_toml({key: of for key, of in tables.items() if of not in (None, "", {})})
