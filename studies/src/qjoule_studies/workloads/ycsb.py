# SPDX-License-Identifier: Apache-2.0
"""The workload `ycsb`: YCSB's core workloads A to F, and single commands."""

from __future__ import annotations

from collections.abc import Mapping

from qjoule.api import UsageError
from qjoule_studies.workload import Outcome, Target, Value
from qjoule_studies.ycsb import goycsb
from qjoule_studies.ycsb.settings import DEFAULTS, Settings, settings


class Ycsb:
    """YCSB (Cooper et al., SoCC 2010), run by go-ycsb.

    Options:
        workload: A (half reads, half updates), B (95 % reads, 5 % updates), C (reads), D (95 %
            reads of the latest, 5 % inserts), E (95 % scans of 1 to 100 records, 5 % inserts),
            F (half reads, half read-modify-writes), or `insert`, `read`, `update`, `scan`.
        record_count, fields, record_bytes: the records that are there when a run begins.
        operations, threads: of a run.
        distribution: `default` (the workload's), `zipfian` (0.99, scrambled), `uniform`, `latest`.
    """

    name = "ycsb"
    flavours = goycsb.FLAVOURS
    defaults = DEFAULTS

    def __init__(self) -> None:
        self._filled: object = None  #: which server has which records; None: unknown

    def prepare(self, target: Target, options: Mapping[str, Value]) -> None:
        """Exactly the records that are wanted; they are loaded anew once a run has added some."""
        wanted = self._check(target, options)
        filled = (target, wanted.record_count, wanted.fields, wanted.field_bytes)
        if self._filled != filled:
            self._filled = None
            goycsb.load(target, wanted)
        self._filled = None if "insert" in wanted.mix.shares else filled

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:
        return goycsb.run(target, self._check(target, options))

    def _check(self, target: Target, options: Mapping[str, Value]) -> Settings:
        wanted = settings(options)
        if refusal := goycsb.refusal(target, wanted):
            raise UsageError(refusal)
        return wanted
