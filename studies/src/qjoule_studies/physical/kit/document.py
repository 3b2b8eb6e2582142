# SPDX-License-Identifier: Apache-2.0
"""The file of a kit, schema `qjoule.physical-kit/1`: what was measured, and nothing derived.

It holds no host name, user, path, serial number or statement. studies/docs/physical.md has its
fields.
A file may come from anybody: `parse` bounds its size and checks every field.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

SCHEMA = "qjoule.physical-kit/1"
NAME = "qjoule.physical-kit"
MAX_BYTES = 4 << 20
MOST_ITEMS = 2_000  #: of any list
LONGEST_TEXT = 80
MOST = 1e9  #: the largest number; no power, rate or time of a run comes near it
#: The kinds of load.
KINDS = ("computing", "memory", "bursts")
SOURCES = ("powercap", "perf", "hwmon", "replay")
GRADES = ("measured", "simulated")
WEIGHTS = ("counters", "cpu_time")
DOMAINS = ("package", "core", "uncore", "dram", "psys", "wall")
_PRODUCT = re.compile(r"[a-z][a-z0-9]{1,19}")
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,2}")
_MONTH = re.compile(r"20[0-9]{2}-(0[1-9]|1[0-2])")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
#: The data block of an HTML page.
OPENING = '<script type="application/json" id="qjoule-physical-kit">'
_CLOSING = "</script>"


class KitError(ValueError):
    """A file is no kit; the message is one line."""


@dataclass(frozen=True)
class Machine:
    """Facts that many machines have in common. Empty or 0: not known."""

    cpu: str  #: model name
    vendor: str
    family: int
    model: int
    stepping: int
    packages: int
    cores: int
    threads: int
    hypervisor: bool
    kernel: str  #: first two numbers of its version
    governor: str


@dataclass(frozen=True)
class Energy:
    """`given`: an option named the counters' directory, so they may be any files."""

    source: str
    grade: str
    given: bool
    main_domain: str  #: that all powers are about
    domains: tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """How the attribution weighted work; `held_out_error` of the calibration, relative."""

    weight: str
    calibrated: bool
    held_out_error: float | None


@dataclass(frozen=True)
class Plan:
    rounds: int
    seconds_per_run: float
    budget_s: float


@dataclass(frozen=True)
class Server:
    product: str
    version: str


@dataclass(frozen=True)
class Load:
    """A load: `server` is a product of `servers`, `kind` one of `KINDS`."""

    server: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.server} {self.kind}"


@dataclass(frozen=True)
class Part:
    """What the attribution of a run gave to one load: its statements and its client.

    Mean power in W over the time that the load ran. `shared_w` is the part of `energy_w` that a
    package draws once; `low_w` to `high_w` is the 95 % interval of `energy_w`.
    """

    load: int  #: position in `loads`
    calls_per_s: float
    energy_w: float
    shared_w: float
    low_w: float
    high_w: float
    client_w: float  #: the part of `energy_w` that the client process drew


@dataclass(frozen=True)
class Run:
    """One run: none (rest), one (alone) or two loads. `power_w`: the machine's mean power."""

    round: int
    seconds: float
    power_w: float
    others_w: float  #: attributed to all other processes, background work and the kernel
    parts: tuple[Part, ...]

    @property
    def loads(self) -> tuple[int, ...]:
        return tuple(part.load for part in self.parts)


@dataclass(frozen=True)
class Document:
    """The whole file. `absent`: products that were looked for as second server, and not found."""

    qjoule: str
    month: str
    complete: bool
    machine: Machine
    energy: Energy
    model: Model
    plan: Plan
    servers: tuple[Server, ...]
    absent: tuple[str, ...]
    loads: tuple[Load, ...]
    runs: tuple[Run, ...]

    def plain(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"schema": SCHEMA} | asdict(self)


def to_json(document: Document) -> str:
    return json.dumps(document.plain(), indent=1, allow_nan=False) + "\n"


def parse(text: bytes) -> Document:
    """The kit in a file's bytes: an HTML page with a data block, or that block alone.

    Raises `KitError` for everything that is not a whole kit of this version.
    """
    if len(text) > MAX_BYTES:
        raise KitError(f"it is larger than {MAX_BYTES >> 20} MiB")
    try:
        content = text.decode("utf-8")
        plain = json.loads(_block(content), parse_constant=_no_number)
    except RecursionError:
        raise KitError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise KitError("it is not UTF-8") from None
    except KitError:
        raise
    except ValueError:
        raise KitError("it holds no JSON") from None
    if not isinstance(plain, dict):
        raise KitError(f'it has no "schema": "{SCHEMA}"')
    _check_schema(plain.pop("schema", None))
    document: Document = _read(Document, plain, "the file")
    _check(document)
    return document


def _block(content: str) -> str:
    if content.lstrip()[:1] == "{":
        return content
    _, opening, after_opening = content.partition(OPENING)
    block, closing, _ = after_opening.partition(_CLOSING)
    if not opening or not closing:
        raise KitError("it has no data block of a kit")
    return block


def _check_schema(schema: object) -> None:
    if schema == SCHEMA:
        return
    name, _, version = schema.partition("/") if isinstance(schema, str) else ("", "", "")
    if name == NAME and re.fullmatch(r"[0-9]{1,4}", version):
        raise KitError(f"it has version {version} of the format; this qjoule reads version 1")
    raise KitError(f'it has no "schema": "{SCHEMA}"')


def _no_number(_text: str) -> float:
    raise KitError("it holds a number that is not finite")


def _read(kind: Any, value: Any, where: str) -> Any:
    """`value` as `kind`. Raises `KitError` for a missing, unknown, mistyped or unbounded value."""
    if is_dataclass(kind):
        return _read_fields(kind, value, where)
    if get_origin(kind) is UnionType:
        some = next(arg for arg in get_args(kind) if arg is not type(None))
        return None if value is None else _read(some, value, where)
    if get_origin(kind) is tuple:
        if not isinstance(value, list) or len(value) > MOST_ITEMS:
            raise KitError(f"{where} is no list of at most {MOST_ITEMS} items")
        return tuple(_read(get_args(kind)[0], item, where) for item in value)
    if kind is float and type(value) is int:
        value = float(value) if abs(value) <= MOST else math.inf
    if type(value) is not kind:
        raise KitError(f"{where} has a value of the wrong type")
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT or not _PRINTABLE.fullmatch(value):
            raise KitError(f"{where} is no printable text of at most {LONGEST_TEXT} characters")
    elif not 0 <= value <= MOST:  # False and True are 0 and 1
        raise KitError(f"{where} is out of bounds")
    return value


def _read_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise KitError(f"{where} is no object")
    names = [field.name for field in fields(kind)]
    if missing := [name for name in names if name not in value]:
        raise KitError(f"{where} lacks {missing[0]}")
    if any(name not in names for name in value):
        raise KitError(f"{where} has an unknown field")
    hints = get_type_hints(kind)
    return kind(**{name: _read(hints[name], value[name], name) for name in names})


def _check(document: Document) -> None:
    """Checks what types do not say. Raises `KitError`."""
    chosen = (
        (document.energy.source, SOURCES, "energy source"),
        (document.energy.grade, GRADES, "grade"),
        (document.model.weight, WEIGHTS, "weight"),
        *((name, DOMAINS, "domain") for name in document.energy.domains),
        *((load.kind, KINDS, "kind of load") for load in document.loads),
        (document.energy.main_domain, document.energy.domains, "main domain"),
    )
    for value, allowed, name in chosen:
        if value not in allowed:
            raise KitError(f"it has an unknown {name}")
    products = [server.product for server in document.servers]
    if not all(map(_PRODUCT.fullmatch, (*products, *document.absent))):
        raise KitError("it has a server without a proper name")
    versions = [document.qjoule, document.machine.kernel]
    versions += [server.version for server in document.servers]
    if not all(not version or _VERSION.fullmatch(version) for version in versions):
        raise KitError("it has a version that is none")
    if not _MONTH.fullmatch(document.month):
        raise KitError("its month is none")
    if len(set(products)) < len(products) or len(set(document.loads)) < len(document.loads):
        raise KitError("it has a server or a load twice")
    if any(load.server not in products for load in document.loads):
        raise KitError("it has a load without a server")
    _check_runs(document)


def _check_runs(document: Document) -> None:
    keys = set()
    for run in document.runs:
        key = run.round, run.loads
        if key in keys:
            raise KitError("it has a run twice")
        keys.add(key)
        if len(run.parts) > 2 or len(set(run.loads)) < len(run.loads):
            raise KitError("it has a run of other than none, one or two loads")
        if not all(load < len(document.loads) for load in run.loads):
            raise KitError("it has a run of an unknown load")
        if not 1 <= run.round <= document.plan.rounds or not run.seconds > 0:
            raise KitError("it has a run outside its plan")
        for part in run.parts:
            if not part.low_w <= part.energy_w <= part.high_w or part.shared_w > part.energy_w:
                raise KitError("it has a power outside its interval")
