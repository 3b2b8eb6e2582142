# SPDX-License-Identifier: Apache-2.0
"""The workload `ycsb`: YCSB's core workloads A to F, and single commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qjoule.api import UsageError
from qjoule_studies import goycsb
from qjoule_studies.workload import Outcome, Target, Value
from qjoule_studies.workloads import option_values

DISTRIBUTIONS = ("zipfian", "uniform", "latest")
MOST_RECORDS = 100_000_000
MOST_OPERATIONS = 100_000_000


@dataclass(frozen=True)
class Mix:
    """A workload: shares of commands that add up to 1, and whose records they are about."""

    shares: Mapping[str, float]
    distribution: str = "zipfian"


#: The core workloads of the paper's table 2, and each command by itself.
MIXES: Mapping[str, Mix] = {
    "A": Mix({"read": 0.5, "update": 0.5}),
    "B": Mix({"read": 0.95, "update": 0.05}),
    "C": Mix({"read": 1.0}),
    "D": Mix({"read": 0.95, "insert": 0.05}, "latest"),
    "E": Mix({"scan": 0.95, "insert": 0.05}),
    "F": Mix({"read": 0.5, "read-modify-write": 0.5}),
    "insert": Mix({"insert": 1.0}),
    "read": Mix({"read": 1.0}),
    "update": Mix({"update": 1.0}),
    "scan": Mix({"scan": 1.0}),
}
DEFAULTS: Mapping[str, Value] = {
    "workload": "A",
    "record_count": 1_000,
    "operations": 10_000,
    "record_bytes": 1_000,
    "fields": 10,
    "threads": 10,
    "distribution": "default",
}


@dataclass(frozen=True)
class Settings:
    """Checked options. `distribution` is never `default`."""

    workload: str
    mix: Mix
    record_count: int
    operations: int
    fields: int
    field_bytes: int
    threads: int
    distribution: str


def settings(values: Mapping[str, Value]) -> Settings:
    """Raises UsageError where a value makes no sense."""
    options = option_values.only_known(Ycsb.name, values, DEFAULTS)
    workload = option_values.choice(options, "workload", MIXES)
    fields = option_values.integer(options, "fields", 1, 100)
    record_bytes = option_values.integer(options, "record_bytes", 1, 1_000_000)
    if record_bytes % fields:
        raise UsageError(f"record_bytes has to be a multiple of fields: {fields} are of one size")
    distribution = option_values.choice(options, "distribution", ("default", *DISTRIBUTIONS))
    operations = option_values.integer(options, "operations", 1, MOST_OPERATIONS)
    threads = option_values.integer(options, "threads", 1, 1_000)
    if threads > operations:
        raise UsageError(f"threads ({threads}) cannot be more than operations ({operations})")
    mix = MIXES[workload]
    return Settings(
        workload,
        mix,
        option_values.integer(options, "record_count", 1, MOST_RECORDS),
        operations,
        fields,
        record_bytes // fields,
        threads,
        mix.distribution if distribution == "default" else distribution,
    )


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
