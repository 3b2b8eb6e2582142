# SPDX-License-Identifier: Apache-2.0
"""The data of every figure as a table, written beside the figure as CSV, Parquet and JSON.

Each function takes a trace's figures or a study and returns a DataFrame with units in the names of
its columns, and the grade, idle policy and loss in every row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qjoule.model.result import PARTS
from qjoule.report.gather import Gathered
from qjoule.report.page_data import query_text
from qjoule.report.study_runs import FACTOR, read_runs
from qjoule.reporters import format as fmt
from qjoule.reporters import missing
from qjoule.reporters.provenance import has_energy
from qjoule.reporters.result_columns import WAITS, json_row
from qjoule.shapes.safe_text import sanitise

TEXT_MAX = 4000


def power(gathered: Gathered) -> pd.DataFrame:
    """Long form: a row for each bucket of time and series; the parts add up to `measured`.

    Series `statement N` is row N of the figure `statements`, and a part of `queries`.
    """
    over_time = gathered.power
    edges_s = over_time.edges_ns * 1e-9
    series = {"measured": over_time.measured_nj, **over_time.parts_nj}
    series |= {f"statement {row + 1}": nj for row, nj in over_time.rows_nj.items()}
    known_s = np.where(over_time.known_ns > 0, over_time.known_ns * 1e-9, np.nan)
    frames = [
        pd.DataFrame(
            {
                "begin_s": edges_s[:-1],
                "end_s": edges_s[1:],
                "series": name,
                "energy_nj": nj,
                "power_w": nj * 1e-9 / known_s,
            }
        )
        for name, nj in series.items()
    ]
    return _with_provenance(pd.concat(frames, ignore_index=True), gathered)


def statements(gathered: Gathered) -> pd.DataFrame:
    """A row for each group of queries, with the fields of `qjoule attribute --format json`."""
    energy_known = has_energy(gathered.attribution)
    rows = []
    for row in gathered.attribution.rows:
        fields = json_row(row, energy_known)
        plain: dict[str, Any] = {
            name: value
            for name, value in fields.items()
            if not isinstance(value, list | dict | tuple)
        }
        for name in ("energy_j_ci95", "j_per_call_ci95"):
            plain[f"{name}_low"], plain[f"{name}_high"] = fields[name] or (None, None)
        plain["shape"] = query_text(row)
        rows.append(
            {k: sanitise(v[:TEXT_MAX]) if isinstance(v, str) else v for k, v in plain.items()}
        )
    return _with_provenance(pd.DataFrame(rows), gathered)


def latency(gathered: Gathered) -> pd.DataFrame:
    """The parts of each query group's latency, summed over its calls, in ns."""
    rows = [
        {"statement": number, "shape": sanitise(query_text(row)[:TEXT_MAX])}
        | {part.name: part.value(row) for part in WAITS}
        for number, row in enumerate(gathered.attribution.rows, 1)
        if row.waits
    ]
    return _with_provenance(pd.DataFrame(rows), gathered)


def parts(gathered: Gathered) -> pd.DataFrame:
    """Energy by part of the total."""
    main = gathered.attribution.main if has_energy(gathered.attribution) else None
    rows = [
        {"part": part, "energy_j": fmt.in_joules(main.parts_nj[part]) if main else None}
        for part in PARTS
    ]
    return _with_provenance(pd.DataFrame(rows), gathered)


def calls(gathered: Gathered) -> pd.DataFrame:
    """The sampled calls of the rows that have details."""
    rows_of = gathered.attribution.rows
    names = {n: sanitise(rows_of[n].keys.get("fingerprint", "")[:200]) for n in gathered.details}
    rows = [
        {
            "statement": number + 1,
            "fingerprint": names[number],
            "energy_j": nj * 1e-9,
            "latency_ns": ns if ns >= 0 else None,
        }
        for number, detail in gathered.details.items()
        for nj, ns in zip(detail.call_nj.tolist(), detail.latency_ns.tolist(), strict=True)
    ]
    columns = ["statement", "fingerprint", "energy_j", "latency_ns"]
    return _with_provenance(pd.DataFrame(rows, columns=columns), gathered)


def calls_over_time(gathered: Gathered) -> pd.DataFrame:
    """Calls and energy of the rows that have details, by coarse bucket."""
    edges_s = gathered.detail_edges_ns * 1e-9
    frames = [
        pd.DataFrame(
            {
                "statement": number + 1,
                "begin_s": edges_s[:-1],
                "end_s": edges_s[1:],
                "calls": detail.calls[: len(edges_s) - 1],
                "energy_nj": detail.energy_nj,
            }
        )
        for number, detail in gathered.details.items()
        if len(edges_s) > 1
    ]
    empty = pd.DataFrame(columns=["statement", "begin_s", "end_s", "calls", "energy_nj"])
    return _with_provenance(pd.concat(frames, ignore_index=True) if frames else empty, gathered)


def runs(path: Path) -> pd.DataFrame:
    """A study's runs. Factors keep their prefix, which separates them from other columns."""
    frame = read_runs(path)
    for name in frame.columns:
        if frame[name].map(lambda value: isinstance(value, list)).any():
            frame[name] = frame[name].map(lambda value: " ".join(map(str, value or ())))
        if name.startswith(FACTOR):
            frame[name] = frame[name].map(str)
    return frame


def _with_provenance(frame: pd.DataFrame, gathered: Gathered) -> pd.DataFrame:
    about = gathered.attribution
    return frame.assign(
        grade=about.energy_source.grade,
        idle_policy=about.policy.get("idle", ""),
        loss=missing.loss(about),
    )
