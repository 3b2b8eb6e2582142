# SPDX-License-Identifier: Apache-2.0
"""What the demo prints: the energy table, then the gain of each pair's better form."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from pathlib import Path

from pairs import NamedPair, render
from qjoule.engine.attribute import attribute
from qjoule.errors import QjouleError
from qjoule.model.gpsup import Form, Interval, compare
from qjoule.model.same_total import without_total_error
from qjoule.reporters.json_report import forms
from qjoule.reporters.table import render as render_table
from qjoule.servers import registry
from qjoule.servers.decoding import fingerprint
from qjoule.trace.reader import Trace
from qjoule_studies.twitter.sql_pairs import Pair

TABLE_ROWS = 12  #: both forms of every pair, and the statements the client's driver sends first


def print_report(directory: Path, pairs: tuple[Pair, ...]) -> bool:
    """Prints the report on a recorded trace to standard output; returns whether it is complete.

    Raises:
        QjouleError: the trace cannot be read, or a form of a pair is not in it.
    """
    trace = Trace(directory)
    result = attribute(trace)
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print()
    print(render_table(result, color=color, limit=TABLE_ROWS))
    by_fingerprint = {form.name: without_total_error(form) for form in forms(result)}
    latencies = latency_intervals(trace)
    compared = [_compared(pair, by_fingerprint, latencies) for pair in pairs]
    print(render(compared, result.energy_source.grade, color=color), end="", flush=True)
    return result.trace.complete


def latency_intervals(trace: Trace) -> dict[str, Interval]:
    """95 % interval of the mean latency in ns by fingerprint, from the queries that ended."""
    queries = trace.pandas("queries").dropna(subset=["begin_ns", "end_ns", "fingerprint"])
    latency = (queries["end_ns"] - queries["begin_ns"]).astype(float)
    intervals = {}
    for name, values in latency.groupby(queries["fingerprint"].astype(str)):
        if len(values) > 1:
            half = 1.96 * float(values.std()) / math.sqrt(len(values))
            mean = float(values.mean())
            intervals[str(name)] = (max(0.0, mean - half), mean + half)
    return intervals


def _compared(
    pair: Pair, by_fingerprint: dict[str, Form], latencies: dict[str, Interval]
) -> NamedPair:
    """The pair, with the form that took more energy per call as the base."""
    ranked = []
    for form in pair.forms:
        statement = form.sql.replace("%s", "1").encode()
        name = fingerprint(statement, registry.dialect("mysql")).fingerprint
        if name not in by_fingerprint:
            raise QjouleError(f"the trace has no query '{pair.title}, {form.label}': run it again")
        measured = replace(by_fingerprint[name], latency_ns_ci95=latencies.get(name))
        ranked.append((measured.j_per_call or 0.0, form.label, measured))
    (_, better, new), (_, worse, base) = sorted(ranked, key=lambda entry: entry[0])
    return NamedPair(pair.title, better, worse, compare(base, new))
