# SPDX-License-Identifier: Apache-2.0
"""The plan's file: each key, its type, and what is allowed; and a plan as a file again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qjoule.errors import QjouleError, UsageError
from qjoule.model.coefficients import IDLE_POLICIES
from qjoule.studies import plan as plans
from qjoule.studies.by_server import products
from qjoule.studies.plan import Plan
from qjoule.studies.plan_checks import RESPONSES, check_together
from qjoule.studies.strict_yaml import Item, Section, read_section, to_text
from qjoule.studies.workload import Value

FILE = "plan.yaml"  #: in a study's directory
MOST_LEVELS = 1_000
MOST_REPLICATIONS = 100_000
#: Options of `qjoule record` that the study sets itself.
_OURS = ("-o", "--output", "-d", "--duration", "--pid", "--energy", "--group", "--")


def read_plan(path: Path) -> Plan:
    """The plan in a file.

    Raises:
        UsageError: it is no plan; says the line, the key and what is allowed.
        QjouleError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise QjouleError(f"cannot read the plan {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no plan: it is not UTF-8 text") from None
    return parse_plan(text, str(path))


def parse_plan(text: str, file: str) -> Plan:
    """The plan in a text; `file` is what errors call it. Raises `UsageError`."""
    return _plan(read_section(text, file))


def to_yaml(made: Plan) -> str:
    """A file that reads as an equal plan."""
    return to_text(document(made))


def document(made: Plan) -> dict[str, Any]:
    """The plan as the file's keys, in the order of `KEYS`; empty values are left out."""
    whole = asdict(made)
    whole["options"] = dict(made.options)
    whole["settings"] = {name: dict(of) for name, of in made.settings.items()}
    whole["factors"] = {factor.name: list(factor.levels) for factor in made.factors}
    whole["design"] = {
        **whole["design"],
        "generators": list(made.design.generators),
        "whole_plots": list(made.design.whole_plots),
    }
    whole["record"]["options"] = list(made.record.options)
    times = made.replications
    whole["replications"] = times.least if times.until is None else whole["replications"]
    if made.target is not None:
        whole["target"] = {k: v for k, v in whole["target"].items() if v not in ("", 0)}
    return {key: whole[key] for key in KEYS if whole[key] not in (None, "", {})}


def _plan(whole: Section) -> Plan:
    top = whole.only(*KEYS)
    if top.get("workload") is None:
        raise whole.item.wrong("has no 'workload'")
    found = {key: read(item) for key, read in _READ.items() if (item := top.get(key))}
    made = Plan(**found)
    check_together(made, top)
    return made


def _target(item: Item) -> plans.Running:
    names = ("pid", "flavour", "host", "port", "socket", "user", "database", "password_env")
    section = item.section(names)
    found: dict[str, Any] = {}
    for name in ("host", "socket", "user", "database", "password_env"):
        if of := section.get(name):
            found[name] = of.text()
    if of := section.get("pid"):
        found["pid"] = of.integer(1)
    if of := section.get("port"):
        found["port"] = of.integer(1, 65535)
    if of := section.get("flavour"):
        found["flavour"] = of.choice(products())
    if not found.keys() & {"pid", "flavour", "port", "socket"}:
        raise item.wrong("say which server: give pid, flavour, port or socket")
    return plans.Running(**found)


def _factor(name: str, item: Item) -> plans.Factor:
    levels = [one.value() for one in item.list()]
    if not levels:
        raise item.wrong("has no levels: give a list, such as [1, 10, 100]")
    if len(levels) > MOST_LEVELS:
        raise item.wrong(f"has {len(levels)} levels: at most {MOST_LEVELS}")
    seen: set[Value] = set()
    for one in levels:
        if one in seen:  # 1, 1.0 and true are one level: their runs would look the same
            raise item.wrong(f"has the level {one} twice")
        seen.add(one)
    if name in (plans.SERVER, plans.GOVERNOR) and not all(isinstance(one, str) for one in levels):
        raise item.wrong("its levels are names: give words")
    if name == plans.FREQUENCY:
        for level in item.list():
            level.number(1.0, 100_000.0)
    if not name or name == plans.SETTING:
        raise item.wrong("a factor needs a name")
    return plans.Factor(name, tuple(levels))


def _design(item: Item) -> plans.Design:
    section = item.section(("kind", "generators", "blocks", "order", "seed", "whole_plots"))
    found: dict[str, Any] = {}
    kind = of.choice(("full", "fractional")) if (of := section.get("kind")) else ""
    if of := section.get("generators"):
        found["generators"] = tuple(one.text() for one in of.list())
    if kind == "full" and found.get("generators"):
        raise item.wrong("a full design has no generators: leave them out, or kind: fractional")
    if kind == "fractional" and not found.get("generators"):
        raise item.wrong("a fractional design needs generators, such as [C=AB]")
    if of := section.get("blocks"):
        found["blocks"] = of.integer(0, MOST_REPLICATIONS)
    if of := section.get("order"):
        found["order"] = of.choice(("random", "standard"))
    if of := section.get("seed"):
        found["seed"] = of.integer(0)
    if of := section.get("whole_plots"):
        found["whole_plots"] = tuple(one.text() for one in of.list())
    return plans.Design(**found)


def _replications(item: Item) -> plans.Replications:
    if not item.is_section():
        number = item.integer(1, MOST_REPLICATIONS)
        return plans.Replications(number, number)
    section = item.section(("least", "most", "until", "response"))
    until = of.ratio() if (of := section.get("until")) else None
    least = of.integer(1, MOST_REPLICATIONS) if (of := section.get("least")) else 3
    if until is None:
        if section.get("most") or section.get("response"):
            raise item.wrong("'most' and 'response' go with 'until': give that, or one number")
        return plans.Replications(least, least)
    if least < 2:
        raise item.wrong("an interval needs two runs: give least: 2 or more")
    most = of.integer(1, MOST_REPLICATIONS) if (of := section.get("most")) else max(30, least)
    if most < least:
        raise item.wrong(f"most ({most}) is less than least ({least})")
    response = of.choice(RESPONSES) if (of := section.get("response")) else "j_per_operation"
    return plans.Replications(least, most, until, response)


def _warm_up(item: Item) -> plans.WarmUp:
    section = item.section(("seconds", "operations"))
    seconds = of.number() if (of := section.get("seconds")) else 0.0
    operations = of.integer() if (of := section.get("operations")) else 0
    return plans.WarmUp(seconds, operations)


def _control(item: Item) -> plans.Control:
    section = item.section(("work", "settle", "within", "last", "tries", "pause_s"))
    found: dict[str, Any] = {}
    if of := section.get("work"):
        found["work"] = of.choice(("cpu", "server"))
    if of := section.get("settle"):
        found["settle"] = of.choice(("flag", "refuse", "off"))
    if of := section.get("within"):
        found["within"] = of.ratio()
    if of := section.get("last"):
        found["last"] = of.integer(2, 1000)
    if of := section.get("tries"):
        found["tries"] = of.integer(2, 100_000)
    if of := section.get("pause_s"):
        found["pause_s"] = of.number(0.0, 3600.0)
    made = plans.Control(**found)
    if made.tries < made.last:
        raise item.wrong(f"tries ({made.tries}) is less than last ({made.last})")
    return made


def _record(item: Item) -> plans.Recording:
    section = item.section(("energy", "without_energy", "idle", "options"))
    found: dict[str, Any] = {}
    if of := section.get("energy"):
        found["energy"] = of.text()
    if of := section.get("without_energy"):
        found["without_energy"] = of.boolean()
    if of := section.get("idle"):
        found["idle"] = of.choice(IDLE_POLICIES)
    if of := section.get("options"):
        found["options"] = tuple(one.text() for one in of.list())
        for one in of.list():
            word = one.text()
            if word.partition("=")[0] in _OURS or word[:2] in ("-o", "-d"):
                raise one.wrong(f"{word!r} is set by the study itself")
    return plans.Recording(**found)


def _settings(item: Item) -> dict[str, dict[str, Value]]:
    return {name: of.section().values() for name, of in item.section().items()}


def _factors(item: Item) -> tuple[plans.Factor, ...]:
    return tuple(_factor(name, of) for name, of in item.section().items())


_READ: dict[str, Callable[[Item], Any]] = {
    "name": Item.text,
    "workload": Item.text,
    "options": lambda item: item.section().values(),
    "server": Item.text,
    "settings": _settings,
    "target": _target,
    "factors": _factors,
    "design": _design,
    "replications": _replications,
    "warm_up": _warm_up,
    "control": _control,
    "record": _record,
    "limit_s": lambda item: item.number(1.0),
}
KEYS = tuple(_READ)
