# SPDX-License-Identifier: Apache-2.0
"""Joules of single calls: a sample of every statement's calls, apportioned like groups.

Within a window, a call gets the same share of its group's energy as of the group's CPU time.
This is what `qjoule attribute --by query` computes without hardware counters. The sample depends
only on the calls' ids, so the same trace gives the same sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qjoule.model.arrays import F64, Machine, Segments, WindowBatch, real_sums
from qjoule.model.energy import I64
from qjoule.model.latency import CallStats
from qjoule.model.ledger import Ledger
from qjoule.model.slow import first_parts
from qjoule.model.split import Split
from qjoule.trace.columns import view

PER_GROUP = 150  #: expected number of a group's calls in the sample
GROUPS = 200  #: number of sampled groups: those with the most busy time
_U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class _Pieces:
    """Segments of sampled calls whose windows are still open, (n,) each."""

    query: _U64
    group: I64
    slot: I64  #: of the package
    t0_ns: I64
    t1_ns: I64

    def take(self, rows: npt.NDArray[np.generic]) -> _Pieces:
        return _Pieces(*(getattr(self, field.name)[rows] for field in fields(self)))


def _concatenated(parts: Sequence[_Pieces]) -> _Pieces:
    return _Pieces(
        *(
            np.concatenate([getattr(piece, field.name) for piece in parts])
            for field in fields(_Pieces)
        )
    )


class Sample:
    """Sums the energy of sampled calls while the trace is attributed."""

    def __init__(self, stats: CallStats, machine: Machine) -> None:
        busy = np.nan_to_num(stats.calls * stats.latency_ns_mean)
        most = np.argsort(-busy, kind="stable")[:GROUPS]
        self._chance = np.zeros(len(stats.calls))
        self._chance[most] = PER_GROUP / np.maximum(stats.calls[most], 1)
        self._machine, self._package = machine, machine.package_slots()
        self._waiting: list[_Pieces] = []
        self._done: list[tuple[_U64, I64, F64]] = []

    def read(self, table: pa.Table, segments: Segments) -> None:
        """Collects the segments of sampled calls."""
        query = view(table.column("query"), 0)
        inside = segments.group < len(self._chance)
        chance = self._chance[np.where(inside, segments.group, 0)] * inside
        rows = np.flatnonzero((query > 0) & (_unit_hash(query) < chance))
        cpu = self._machine.slots(segments.cpu[rows])
        rows, cpu = rows[cpu >= 0], cpu[cpu >= 0]
        self._waiting.append(
            _Pieces(
                query[rows],
                segments.group[rows],
                self._package[cpu],
                segments.t0_ns[rows],
                segments.t1_ns[rows],
            )
        )

    def split(self, batch: WindowBatch, ledger: Ledger, splits: Sequence[Split]) -> None:
        """Gives the calls of these windows their part of the main domain."""
        if not self._waiting or not ledger.domains:
            return
        bounds = batch.energy.boundaries_ns
        pieces = _concatenated(self._waiting)
        later = pieces.t1_ns > bounds[-1]
        self._waiting = [pieces.take(later)]
        placed = _cut_at_windows(pieces.take(pieces.t0_ns < bounds[-1]), bounds)
        pieces, window = placed
        if not len(window):
            return
        energy = np.zeros(len(window))
        groups = ledger.groups
        for zone in ledger.zones[ledger.main]:
            entries = zone.take(zone.view(batch)).entries
            part_of = np.searchsorted(first_parts(batch, zone.series), window, "right") - 1
            in_zone = np.flatnonzero(np.isin(pieces.slot, zone.slots))
            if not len(in_zone) or not len(entries.window):
                continue
            entry_nj = np.sum([splits[s].entry_nj for s in zone.series], axis=0)
            key = entries.window * groups + entries.group
            piece_key = part_of[in_zone] * groups + pieces.group[in_zone]
            index = np.minimum(np.searchsorted(key, piece_key), len(key) - 1)
            ns = (pieces.t1_ns - pieces.t0_ns)[in_zone]
            part = np.minimum(ns / np.maximum(entries.cpu_ns[index], 1), 1.0)
            energy[in_zone] += np.where(key[index] == piece_key, entry_nj[index] * part, 0.0)
        self._done.append((pieces.query, pieces.group, energy))

    def calls(self) -> tuple[_U64, I64, F64]:
        """Returns sorted ids of the sampled calls, their groups, and their energies in nJ."""
        if not self._done:
            return np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0)
        query = np.concatenate([done[0] for done in self._done])
        group = np.concatenate([done[1] for done in self._done])
        energy = np.concatenate([done[2] for done in self._done])
        ids, first, place = np.unique(query, return_index=True, return_inverse=True)
        sums = real_sums(place.reshape(-1), energy, len(ids))
        return ids, group[first], sums


def _unit_hash(query: _U64) -> F64:
    """Maps each id to a number from 0 to 1: Fibonacci hashing with a final mix (splitmix64)."""
    mixed = query * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _cut_at_windows(pieces: _Pieces, bounds: I64) -> tuple[_Pieces, I64]:
    """Cuts the segments at window boundaries. Returns the pieces and each one's window."""
    t0_ns, t1_ns = np.maximum(pieces.t0_ns, bounds[0]), np.minimum(pieces.t1_ns, bounds[-1])
    some = np.flatnonzero(t1_ns > t0_ns)
    pieces, t0_ns, t1_ns = pieces.take(some), t0_ns[some], t1_ns[some]
    first = np.searchsorted(bounds, t0_ns, "right") - 1
    count = np.searchsorted(bounds, t1_ns, "left") - first
    row = np.repeat(np.arange(len(first)), count)
    step = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    window = first[row] + step
    t0_ns = np.maximum(t0_ns[row], bounds[window])
    t1_ns = np.minimum(t1_ns[row], bounds[window + 1])
    return _Pieces(pieces.query[row], pieces.group[row], pieces.slot[row], t0_ns, t1_ns), window
