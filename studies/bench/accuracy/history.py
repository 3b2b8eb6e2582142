# SPDX-License-Identifier: Apache-2.0
"""Recordings of one machine on several days, on which shapes recur, and a memory between them.

`make_history` draws the recordings. `remembering` runs them in order and hands what was learned in
one to the next. How that is done is a `Step`: `forgetful` learns nothing, `with_memory` has the
product's memory.

Results are written as JSON by one command and read by another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from studies.bench.accuracy import mixes
from studies.bench.accuracy.engine_run import BOOTED_S, CONDITIONS, attribute
from studies.bench.accuracy.engine_run import remembering as remembered
from studies.bench.accuracy.harness import result_of
from studies.bench.accuracy.machine import Topology, another_day, draw_machine
from studies.bench.accuracy.outcomes import (
    FAMILIES,
    HISTORY,
    MEMORY,
    WITH_SIBLINGS,
    CaseResult,
    Outcome,
    own_outcome,
)
from studies.bench.accuracy.plans import Plan, draw_hidden_bound
from studies.bench.accuracy.recording import Case, Recording
from studies.bench.accuracy.scenarios import (
    calibration_of,
    draw_rig,
    dressed,
    extra_random,
    recorded,
)
from studies.bench.accuracy.workload import Source, run

from qjoule.model.coefficients import Coefficients
from qjoule.model.fit.cells import Cell, union
from qjoule.model.fit.remembered import Now
from qjoule.model.ledger import Ledger

SCHEMA = "qjoule.accuracy/1"
LARGEST_BYTES = 1 << 30


class NotResults(Exception):
    """A file does not contain results of this bench."""


def save(path: Path, results: Sequence[CaseResult], other: dict[str, Any]) -> None:
    """Writes all cases, with `other` figures beside them."""
    document = {"schema": SCHEMA, **other, "cases": [asdict(result) for result in results]}
    path.write_text(json.dumps(document, indent=None, separators=(",", ":")) + "\n")


def load(path: Path) -> list[CaseResult]:
    """The cases that `save` wrote.

    Raises:
        NotResults: the file cannot be read, is not JSON, or has another schema or other fields.
    """
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise NotResults(f"{path}: larger than {LARGEST_BYTES} bytes")
        document = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise NotResults(f"{path}: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise NotResults(f"{path}: not a file of schema {SCHEMA}")
    cases = document.get("cases")
    if not isinstance(cases, list):
        raise NotResults(f"{path}: no list of cases")
    try:
        return [_case(case) for case in cases]
    except (TypeError, KeyError, ValueError) as error:
        raise NotResults(f"{path}: {error}") from error


def _case(value: dict[str, Any]) -> CaseResult:
    outcomes = tuple(Outcome(**_checked(Outcome, document)) for document in value["outcomes"])
    return CaseResult(**{**_checked(CaseResult, value), "outcomes": outcomes})


_KINDS: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "bool | None": (bool, type(None)),
}


def _checked(kind: type[Outcome] | type[CaseResult], value: Any) -> dict[str, Any]:
    """The fields of one object. Raises `TypeError` or `ValueError` for what does not belong."""
    if not isinstance(value, dict):
        raise TypeError(f"not an object: {str(value)[:40]}")
    types = {field.name: str(field.type) for field in fields(kind)}
    for name, content in value.items():
        if name not in types:
            raise ValueError(f"unknown field {name[:40]}")
        expected = _KINDS.get(types[name])
        expected = expected or (dict if types[name].startswith("dict") else list)
        if not isinstance(content, expected):
            raise TypeError(f"{name}: not {types[name]}")
        if isinstance(content, dict | list) and name != "outcomes":
            for number in _leaves(content):
                if not isinstance(number, int | float):
                    raise TypeError(f"{name}: not a number: {str(number)[:40]}")
    return value


def _leaves(content: Any) -> list[Any]:
    """Everything in the lists and tables of an outcome that is no list or table."""
    if not isinstance(content, dict | list):
        return [content]
    parts = content.values() if isinstance(content, dict) else content
    return [leaf for part in parts for leaf in _leaves(part)]


DAY_NS = 24 * 3_600 * 1_000_000_000
SECONDS = (10, 20)  #: length of each recording
SHAPES = (8, 13)  #: that a machine's clients ever call
OFTEN = 1_500  #: slices per second of each shape, at most

#: From a case and what was learned before it to the case's ledger and what is known after it.
State = Any
Step = Callable[[Case, State], tuple[Ledger, State]]


def make_history(family: str, seed: int, n: int) -> list[Case]:
    """`n` recordings of one machine, a few days apart, the same bytes for the same seed.

    Each has three to six of the machine's shapes, at another load and in another mix, beside the
    same background. Behaviours of shapes stay the same. All share one calibration run.

    Raises:
        KeyError: there is no such family.
        ValueError: `n` is not positive.
    """
    if n < 1:
        raise ValueError("a history has at least one recording")
    entropy = [crc32(HISTORY.encode()), seed]
    draw, rest = (np.random.default_rng(s) for s in np.random.SeedSequence(entropy).spawn(2))
    extra = extra_random(family, HISTORY, seed)
    threads = 2 if family in WITH_SIBLINGS else int(draw.integers(1, 3))
    topology = Topology(1, int(draw.integers(4, 9)), threads)
    hidden = draw_hidden_bound(draw)
    pool = mixes.shapes(draw, int(draw.integers(*SHAPES)), hidden, topology.cpus, (2e5, 1e7))
    others = mixes.background(draw, hidden, 0.03 * topology.cpus)
    others += mixes.rest(draw, hidden, 0.05 * topology.cpus)
    machine = draw_machine(rest, topology)
    effects = FAMILIES[family](extra, machine)
    pool, others = dressed(extra, effects, pool), dressed(extra, effects, others)
    rig = draw_rig(rest, Plan(topology, [], hidden), (machine, effects))
    begin_ns = int(draw.integers(10**12, 10**13))
    calibration, phases = calibration_of((rest, extra), rig, begin_ns)
    cases = []
    for number in range(n):
        sources = _mix(draw, pool, topology.cpus) + others
        span_ns = (begin_ns, begin_ns + int(draw.uniform(*SECONDS) * 1e9))
        work = run(draw, sources, topology.cpus, span_ns, 0.03)
        today = replace(rig, machine=another_day(rest, machine))
        recording, facts = recorded((rest, extra), today, work, span_ns)
        case = Case(HISTORY, seed, recording, facts, calibration, phases, family, number)
        cases.append(case)
        begin_ns += int(draw.uniform(0.5, 4) * DAY_NS)
    return cases


def _mix(random: np.random.Generator, pool: Sequence[Source], cpus: int) -> list[Source]:
    """Some of the shapes, each with its own share of today's load."""
    count = int(random.integers(3, 7))
    indices = sorted(random.permutation(len(pool))[:count].tolist())
    load = cpus * random.uniform(0.08, 0.45) * random.dirichlet(np.full(count, 2.0))
    sources = []
    for index, share in zip(indices, load.tolist(), strict=True):
        source = pool[index]
        most = source.call_ns * OFTEN / source.parts * 1e-9
        swing = random.uniform(0.3, 1.2)
        sources.append(replace(source, load=min(share + 1e-3, most), swing=swing))
    return sources


def forgetful(case: Case, state: State) -> tuple[Ledger, State]:
    """Without calibration and without memory: every recording begins with nothing known."""
    return attribute(case.recording, Coefficients(), refit=True), state


def remembering(cases: Iterable[Case], step: Step = forgetful) -> Iterator[Ledger]:
    """The ledgers of one machine's cases, in order; `step` may hand on what it learned."""
    state: State = None
    for case in cases:
        ledger, state = step(case, state)
        yield ledger


def run_history(cases: Sequence[Case], step: Step | None = None) -> list[CaseResult]:
    """Results of one machine's cases: "uncalibrated", and "memory" if there is a `step`."""
    ways = {"uncalibrated": forgetful} | ({MEMORY: step} if step else {})
    digests = [hashlib.sha256() for _ in cases]
    ledgers = {name: list(remembering(cases, way)) for name, way in ways.items()}
    results = []
    for number, case in enumerate(cases):
        outcomes = [
            own_outcome(case, name, ledgers[name][number], digests[number]) for name in ways
        ]
        results.append(result_of(case, outcomes, digests[number].hexdigest()))
    return results


def attributed(
    recording: Recording, when_s: float, cells: Sequence[Cell]
) -> tuple[Ledger, tuple[Cell, ...]]:
    """The ledger without calibration under a memory, and the memory with what the recording told.

    `when_s`: the day's Unix time.
    """
    memory = remembered(recording, cells, Now(when_s, CONDITIONS), hash((when_s, len(cells))))
    ledger = attribute(recording, None, refit=True, memory=memory)
    ledger.grow(len(recording.groups))
    return ledger, union([*cells, *memory.take()])


def with_memory(case: Case, state: State) -> tuple[Ledger, State]:
    """The case's ledger, with the evidence of the cases before it."""
    when_s = BOOTED_S + case.recording.begin_ns * 1e-9
    return attributed(case.recording, when_s, state or ())


def run_machine(machine: tuple[str, int], days: int) -> list[CaseResult]:
    """`run_history` of a machine (family, seed), each day with and without its memory."""
    return run_history(make_history(*machine, days), with_memory)
