# SPDX-License-Identifier: Apache-2.0
"""The workload `ycsb`: YCSB's core workloads A to F, and single commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from qjoule.errors import QjouleError, UsageError
from qjoule.studies.workload import Outcome, Target, Value
from qjoule.studies.ycsb import goycsb, own_client, stores
from qjoule.studies.ycsb.plan import DEFAULTS, Settings, settings
from qjoule.studies.ycsb.records import BATCH, batches, keys
from qjoule.studies.ycsb.store import Store


class Ycsb:
    """YCSB (Cooper et al., SoCC 2010): by go-ycsb where it is installed, else by our own client.

    Options:
        workload: A (half reads, half updates), B (95 % reads, 5 % updates), C (reads), D (95 %
            reads of the latest, 5 % inserts), E (95 % scans of 1 to 100 records, 5 % inserts),
            F (half reads, half read-modify-writes), or `insert`, `read`, `update`, `scan`.
        record_count, fields, record_bytes: the records that are there when a run begins.
        operations, threads: of a run.
        distribution: `default` (the workload's), `zipfian` (0.99, scrambled), `uniform`, `latest`.
        seed: of records, and of what the own client does.
        client: `auto`, `go-ycsb`, `own`.
    """

    name = "ycsb"
    flavours = stores.FLAVOURS
    defaults = DEFAULTS

    def prepare(self, target: Target, options: Mapping[str, Value]) -> None:
        """Exactly the records that are wanted; what an earlier run has inserted is removed."""
        wanted = self._check(target, options)
        _client(target, wanted)
        store = stores.open_store(target)
        try:
            fill(store, wanted)
        except store.errors as error:
            raise QjouleError(f"{target.flavour} refuses YCSB's records: {error}") from error
        finally:
            store.close()

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:
        wanted = self._check(target, options)
        program, reason = _client(target, wanted)
        if program is not None:
            return goycsb.run(program, target, wanted)
        store = stores.open_store(target)
        try:
            done = own_client.run(store, wanted)
        finally:
            store.close()
        return replace(done, notes=(reason,)) if reason else done

    def _check(self, target: Target, options: Mapping[str, Value]) -> Settings:
        if target.flavour not in self.flavours:
            raise UsageError(f"ycsb cannot be run against {target.flavour!r:.50}")
        return settings(options)


def fill(store: Store, wanted: Settings) -> None:
    """Leaves the wanted records in the store: loads them, or removes what a run has added."""
    mark = (
        f"{wanted.record_count} records of {wanted.fields} fields of {wanted.field_bytes} bytes, "
        f"seed {wanted.seed}"
    )
    if store.mark() == mark and _trimmed(store, wanted.record_count):
        return
    store.reset(wanted.fields, wanted.field_bytes)
    for records in batches(wanted.record_count, wanted.fields, wanted.field_bytes, wanted.seed):
        store.load(records)
    store.set_mark(mark)


def _trimmed(store: Store, records: int) -> bool:
    """Removes the records that runs have inserted; says whether the others are all that is left."""
    added = store.count() - records
    if added > records:
        return False  # loading is quicker
    # Those of one run follow each other; after several, or a failure, there is more to look for.
    for first in range(records, records + max(added, 0), BATCH):
        store.remove(keys(first, min(first + BATCH, records + added)))
    return added == 0 or (added > 0 and store.count() == records)


def _client(target: Target, wanted: Settings) -> tuple[Path | None, str]:
    """go-ycsb, or None for our own and why it is not go-ycsb.

    Raises:
        UsageError: go-ycsb is asked for, and cannot do it.
        QjouleError: it is asked for, and not there.
    """
    if wanted.client == "own":
        return None, ""
    refusal = goycsb.refusal(target, wanted)
    program = goycsb.installed()
    if wanted.client == "go-ycsb":
        if refusal:
            raise UsageError(f"{refusal}: give client own or auto")
        if program is None:
            raise QjouleError(
                'go-ycsb is not installed: make servers SERVERS="go-ycsb", or give client own'
            )
    if program is None:
        return None, "go-ycsb is not installed"
    return (None, refusal) if refusal else (program, "")
