# SPDX-License-Identifier: Apache-2.0
"""Explains one row of a recorded trace's result, by an observer of a second attribution."""

from __future__ import annotations

import numpy as np

from qjoule.engine import recorded
from qjoule.engine.accounts import provenance
from qjoule.engine.attribute import AttributionContext, AttributionRequest
from qjoule.engine.keys import TRANSACTION
from qjoule.errors import UsageError
from qjoule.model.energy import I64
from qjoule.model.explain import Explanation, RowTotals, RowWatch
from qjoule.model.interval import of_one_recording
from qjoule.model.labels import SHAPE_OF, GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.result import Attribution, Row
from qjoule.model.row_sums import COMMIT
from qjoule.trace.reader import Trace

_FEWEST_DIGITS = 6  #: least of a fingerprint; fewer are a row's number


def find_row(result: Attribution, which: str) -> tuple[int, Row]:
    """Finds a row by its number (from 1) or by a prefix of a value of its keys, such as its
    fingerprint; returns both. Raises `UsageError` unless exactly one row matches."""
    rows = list(enumerate(result.tabled, 1))
    if which.isdecimal() and len(which) < _FEWEST_DIGITS:
        named = [(n, row) for n, row in rows if n == int(which)]
    else:
        named = [(n, row) for n, row in rows if any(v.startswith(which) for v in row.keys.values())]
    if len(named) != 1:
        what = "no row" if not named else f"{len(named)} rows"
        raise UsageError(f"{what} '{which}': give the number of a row, or its fingerprint")
    return named[0]


def explain(trace: Trace, request: AttributionRequest, row: Row) -> Explanation:
    """Returns where the joules of a row of `request`'s result come from, and their interval.

    Raises `UsageError` if the row's joules are not the sum of what its own threads were given.
    """
    recording = recorded.read(trace, transactions=TRANSACTION in request.by)
    context = AttributionContext(recording, request)
    groups = np.array([g for g, label in enumerate(context.labels) if _is_of(label, row)], np.int64)
    watch = RowWatch(groups)
    ledger = context.run(watch=watch)
    if not ledger.domains:
        raise UsageError("no energy source: there are no joules to explain")
    found_nj = int(ledger.domains[ledger.main].energy_nj[groups].sum())
    if not row.exact or found_nj != row.energy_nj or found_nj != watch.energy_nj:
        raise UsageError(
            "this row's joules come from a regression on counted requests, or several "
            "rows were joined: only what own threads were given can be explained"
        )
    summary = recorded.summary(trace, recording)
    grade = provenance(recording.meta, ledger, summary.info).grade
    loss = recorded.record_loss(summary, ledger)
    return watch.explained(totals(ledger, groups, loss, estimated=grade == "estimated"))


def totals(ledger: Ledger, groups: I64, record_loss: float, *, estimated: bool) -> RowTotals:
    """Returns a ledger's sums over `groups`, which form one row. For the other arguments see
    `Ledger.error_parts`."""
    sums = ledger.domains[ledger.main]
    parts = ledger.error_parts(
        ledger.main, total_error=0.0, record_loss=record_loss, estimated=estimated
    ).each()
    return RowTotals(
        energy_nj=int(sums.energy_nj[groups].sum()),
        cpu_ns=int(ledger.cpu_ns[groups].sum()),
        windows=ledger.windows,
        error=of_one_recording([parts[g] for g in groups.tolist()]),
        model_nj=float(sums.errors.model_nj[groups].sum()),
        unknown_rest_nj=float(sums.errors.rest_nj[groups].sum()),
        tails_nj=float(sums.errors.tails_nj[groups].sum()),
    )


def _is_of(label: GroupLabel, row: Row) -> bool:
    keys = {name: value for name, value in label.keys if name not in (SHAPE_OF, COMMIT)}
    return label.kind == row.kind and keys == row.keys and not label.is_counted
