# SPDX-License-Identifier: Apache-2.0
"""The id by which pg_stat_statements and pg_stat_activity know a statement.

PostgreSQL computes its queryid from the parse tree with the numbers of tables and types, so it
cannot be computed from a text. The kernel side reads it where the server reports it
(bpf/postgres/ids.bpf.c).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qjoule.contract import TOLD_ID
from qjoule.servers.decoding_types import Build
from qjoule.shapes.shape import OtherId

QUERY_ID = "pg_queryid"
_OF = "pg_stat_statements"
_SIGN = 1 << 63
_NOT_TOLD = (
    "the server has not reported one: it computes ids for pg_stat_statements or with "
    "compute_query_id = on"
)


def query_id(text: bytes) -> tuple[int, OtherId] | None:
    """The shape and its queryid, a signed number as the views of PostgreSQL show it."""
    if len(text) != TOLD_ID.itemsize:
        return None
    shape, number = np.frombuffer(text, TOLD_ID)[0].tolist()
    return shape, OtherId(QUERY_ID, str(number - 2 * _SIGN if number >= _SIGN else number), _OF)


def ids_of(_text: bytes, _truncated: bool, _rules: int, _build: Build) -> Iterator[OtherId]:
    """What holds of a statement until the server has reported its queryid."""
    yield OtherId(QUERY_ID, None, _OF, _NOT_TOLD)
