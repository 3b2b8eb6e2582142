# SPDX-License-Identifier: Apache-2.0
"""Tables that are divided by a hash of the request's id, on disk, and read bucket by bucket."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa

from qjoule.api import QjouleError
from qjoule.api.command import pq

#: Rows that a bucket should have at most.
BUCKET_ROWS = 200_000
_MOST_BUCKETS = 1024


def buckets_for(rows: int) -> int:
    """Number of buckets for so many rows."""
    return int(min(max(-(-rows // BUCKET_ROWS), 1), _MOST_BUCKETS))


class Spill:
    """Tables by name, each with a column `id`. All rows of an id are in one bucket."""

    def __init__(self, directory: Path, buckets: int) -> None:
        self._directory, self.buckets = directory, buckets
        self._files = 0

    def add(self, name: str, table: pa.Table) -> None:
        """Raises `QjouleError` if there is no room for it."""
        if not table.num_rows:
            return
        encoded = table.column("id").combine_chunks().dictionary_encode()
        of_value = np.array([self._bucket(one) for one in encoded.dictionary.to_pylist()], np.int64)
        bucket = of_value[np.asarray(encoded.indices)]
        self._files += 1
        try:
            for number in np.unique(bucket).tolist():
                path = self._directory / f"{name}-{number:04d}-{self._files:06d}.parquet"
                pq.write_table(table.filter(pa.array(bucket == number)), path)
        except OSError as error:
            raise QjouleError(
                f"cannot write to {self._directory}: {error.strerror}: set TMPDIR to a directory "
                "with more room"
            ) from error

    def read(self, name: str, bucket: int) -> pa.Table | None:
        """A bucket of a table, in the order in which it was added; None: nothing."""
        paths = sorted(self._directory.glob(f"{name}-{bucket:04d}-*.parquet"))
        return pa.concat_tables([pq.read_table(path) for path in paths]) if paths else None

    def _bucket(self, one: str) -> int:
        digest = blake2b(one.encode(errors="surrogateescape"), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self.buckets


@contextmanager
def spilled(rows: Sequence[int]) -> Iterator[Spill]:
    """A place for tables of so many rows; it is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="qjoule-requests-") as directory:
        yield Spill(Path(directory), buckets_for(sum(rows)))
