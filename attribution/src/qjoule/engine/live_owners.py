# SPDX-License-Identifier: Apache-2.0
"""The distinct owners in the kernel side's sums, and the names of the numbers in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qjoule.model.energy import I64

Records = npt.NDArray[Any]  #: of `contract.AGGREGATE`
_IDENTITY = ("owner_kind", "shape", "server", "tgid", "pid")
#: The fields of `_IDENTITY`, and for queries the index of their record's tags.
Identity = tuple[int, int, int, int, int, int]
#: Tags by key; None if it is not known what clients sent.
Tagged = Mapping[str, str] | None


@dataclass(frozen=True)
class LiveNames:
    """Functions that resolve the numbers in the kernel side's records to names."""

    statement: Callable[[int], tuple[str, str] | None]
    """Shape hash to (fingerprint, text); None as long as its text has not come."""
    server: Callable[[int], str]
    process: Callable[[int], str]  #: by tgid
    thread: Callable[[int], str]  #: by pid
    attach_mode: Callable[[str], str] = lambda _server: ""  #: by the server's name
    tags: Callable[[int], Mapping[str, str] | None] = lambda _shape: None
    """Shape hash to the tags of such calls; None if it is a statement's."""


def identities(records: Records, tagged: I64 | None = None) -> tuple[list[Identity], I64]:
    """Returns the distinct owners of some records, and the index of each record's owner.

    `tagged`: (n,) index of each record's tags; None: tags are not needed.
    """
    places = np.zeros(len(records), np.int64) if tagged is None else tagged
    columns = [*(records[name].astype(np.uint64) for name in _IDENTITY), places.astype(np.uint64)]
    # Encoding column by column is several times faster than sorting rows of several fields.
    codes = np.zeros(len(records), np.int64)
    for column in columns:
        values, which = np.unique(column, return_inverse=True)
        codes = np.unique(codes * len(values) + which.reshape(-1), return_inverse=True)[1]
        codes = codes.reshape(-1).astype(np.int64)
    first = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(records) - 1, -1, -1)
    owners: Any = zip(*(column[first].tolist() for column in columns), strict=True)
    return list(owners), codes
