# SPDX-License-Identifier: Apache-2.0
"""Transactions do not depend on how many queries are followed at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qjoule.contract import QUERY, Command, QueryFlag, Rung, SessionEvent
from qjoule.stream.transactions import Transactions
from qjoule.trace.columns import Array

_TEXTS = {
    **{1: ("f1", "begin"), 2: ("f2", "insert"), 3: ("f3", "commit"), 4: ("f4", "rollback")},
    **{5: ("f5", "select"), 6: ("f6", "rollback to s"), 7: ("f5", "select")},
}
_REPORTS = (0, QueryFlag.IN_TRANSACTION, QueryFlag.NO_TRANSACTION)
_QUERY = st.tuples(
    st.integers(1, 3),
    st.integers(0, 7),
    st.sampled_from(_REPORTS),
    st.sampled_from([0, QueryFlag.OK, QueryFlag.ERROR]),
    st.sampled_from([Command.QUERY, Command.QUERY, Command.EXECUTE, Command.OTHER]),
)
_MET = st.tuples(st.integers(1, 3), st.sampled_from([SessionEvent.OPEN, SessionEvent.MET]))


def _named(shape: int) -> tuple[str, str]:
    return _TEXTS.get(shape, ("?", "(text not seen)"))


def _queries(said: list[tuple[int, int, int, int, int]]) -> Array:
    rows = np.zeros(len(said), QUERY)
    for at, (session, shape, report, outcome, command) in enumerate(said):
        rows[at]["query"], rows[at]["begin_ns"], rows[at]["end_ns"] = at + 1, at * 10, at * 10 + 5
        rows[at]["session"], rows[at]["shape"], rows[at]["command"] = session, shape, command
        rows[at]["flags"] = report | outcome
    rows["rung"] = Rung.SOCKET
    return rows


@given(said=st.lists(_QUERY, max_size=40), met=st.lists(_MET, max_size=4), cut=st.integers(1, 40))
def test_transactions_are_the_same_in_batches_and_one_by_one(
    said: list[tuple[int, int, int, int, int]], met: list[tuple[int, SessionEvent]], cut: int
) -> None:
    queries = _queries(said)
    found, rows = [], []
    for size in (1, cut, 40):
        told = Transactions(_named)
        for session, event in met:
            told.met(session, event, 0)
        batches = [queries[at : at + size] for at in range(0, len(queries), size)]
        found.append([one for batch in batches for one in told.assign(batch).tolist()])
        told.finish()
        rows.append(sorted(told.take_rows().to_pylist(), key=lambda row: row["transaction"]))
    assert found[0] == found[1] == found[2]
    assert rows[0] == rows[1] == rows[2]
