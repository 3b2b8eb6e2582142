# SPDX-License-Identifier: Apache-2.0
"""The workload `twitter`: one form of one pair of queries, over Twitter-like data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter_ns

from qjoule.api import QjouleError, UsageError
from qjoule_studies.twitter import FLAVOURS, FORMS, PairFacts, Server, open_server
from qjoule_studies.twitter.data import Sizes
from qjoule_studies.workload import Outcome, Target, Value
from qjoule_studies.workloads import option_values
from qjoule_studies.workloads.closed_loop import latencies_of

LEAST_ROWS, MOST_ROWS = 1_000, 10_000_000
#: After so many failures in a row, the server is considered gone.
GONE_AFTER = 20


@dataclass(frozen=True)
class _Settings:
    pair: str
    form: str
    sizes: Sizes
    seconds: float
    operations: int
    seed: int


class Twitter:
    """The thesis's pairs, and some of their kind, by one client on one connection.

    Options:
        pair: `most_tweeted` is on every server; an unknown one is answered by those there are.
        form: `worse` or `better`.
        rows: tweets, 1,000 to 10,000,000.
        operations: how many calls; 0 for as many as `seconds` give.
        seconds: how long, where `operations` is 0.
        seed: of the data.
    """

    name = "twitter"
    flavours = FLAVOURS
    defaults: Mapping[str, Value] = {
        "pair": "most_tweeted",
        "form": "better",
        "rows": 20_000,
        "operations": 0,
        "seconds": 10.0,
        "seed": 1,
    }

    def prepare(self, target: Target, options: Mapping[str, Value]) -> None:
        wanted, server = self._open(target, options)
        try:
            _pair(server, wanted, target)
            server.prepare(wanted.pair, wanted.form, wanted.seed)
        except server.errors as error:
            raise QjouleError(f"{target.flavour} refuses the data: {error}") from error
        finally:
            server.close()

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:
        wanted, server = self._open(target, options)
        try:
            pair = _pair(server, wanted, target)
            server.open(wanted.pair, wanted.form, wanted.seed)
            return _run(server, wanted, pair)
        except server.errors as error:
            raise QjouleError(f"{target.flavour} refuses {wanted.pair}: {error}") from error
        finally:
            server.close()

    def _open(self, target: Target, options: Mapping[str, Value]) -> tuple[_Settings, Server]:
        if target.flavour not in self.flavours:
            raise UsageError(f"twitter cannot be run against {target.flavour!r:.50}")
        options = option_values.only_known(self.name, options, self.defaults)
        pair = options["pair"]
        if not isinstance(pair, str):
            raise UsageError("pair has to be a name")
        wanted = _Settings(
            pair,
            option_values.choice(options, "form", FORMS),
            Sizes(option_values.integer(options, "rows", LEAST_ROWS, MOST_ROWS)),
            option_values.number(options, "seconds", 0.01, 86_400),
            option_values.integer(options, "operations", 0, 1_000_000_000),
            option_values.integer(options, "seed", 0, 2**32 - 1),
        )
        return wanted, open_server(target, wanted.sizes)


def _pair(server: Server, wanted: _Settings, target: Target) -> PairFacts:
    pairs = server.pairs
    if wanted.pair not in pairs:
        raise UsageError(
            f"{target.flavour} has no pair {wanted.pair!r:.50}: choose {', '.join(pairs)}"
        )
    return pairs[wanted.pair]


def _run(server: Server, wanted: _Settings, pair: PairFacts) -> Outcome:
    most = pair.most_calls
    if wanted.operations:
        most = wanted.operations if most is None else min(most, wanted.operations)
    times_ns: list[int] = []
    number = errors = failed = 0
    start_ns = end_ns = perf_counter_ns()
    refusal: Exception | None = None
    stop_ns = None if wanted.operations else start_ns + int(wanted.seconds * 1e9)
    while (most is None or number < most) and (stop_ns is None or end_ns < stop_ns):
        began_ns = perf_counter_ns()
        try:
            server.call(number)
            failed = 0
        except server.errors as error:
            errors, failed, refusal = errors + 1, failed + 1, error
            if failed == GONE_AFTER:
                raise
        end_ns = perf_counter_ns()
        if not failed:
            times_ns.append(end_ns - began_ns)
        number += 1
    if refusal is not None and not times_ns:
        raise refusal
    label = pair.labels[FORMS.index(wanted.form)]
    notes = [f"{pair.title}, {label} (Mahajan 2016: {pair.source})"]
    ended_early = number == pair.most_calls and (
        number < wanted.operations if stop_ns is None else end_ns < stop_ns
    )
    if ended_early:
        notes.append(f"stopped after {number} calls: there is nothing left to {pair.name}")
    return Outcome(
        operations=len(times_ns),
        errors=errors,
        wall_s=(end_ns - start_ns) / 1e9,
        client="qjoule",
        commands={wanted.form: latencies_of(times_ns)} if times_ns else {},
        notes=tuple(notes),
    )
