# SPDX-License-Identifier: Apache-2.0
"""Rows of rollups of one simulated host and hour, and what is true of it.

The rows have the agent's schema and obey its laws: in each minute all rows but the node's add up to
the node's energy. An hour depends on the plan, the host and the hour alone, whatever was made
before, so parts can be made again, late or in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from fleet.bench.simulator.population import GRADES, POLICY, Fleet

from qjoule.agent.hourly_tables import ERRORS, ROWS, WAITS, rounded_up
from qjoule.contract import LATENCY_BUCKETS
from qjoule.model.arrays import F64
from qjoule.model.energy import I64
from qjoule.model.interval import Z95

MINUTES = 60
#: The variance of a row's windows' edges, for each nJ of its energy: 1 J is off by 3 %.
EDGES_NJ = 1e6
#: The mean of what a host takes beside its queries, in W, and their spread.
IDLE_W, OTHER_W, DRAM_SHARE = 45.0, 3.0, 0.12
MINUTE_NJ = 60e9  #: of 1 W
OWNERS = (
    ("background", "", "log writer"),
    ("idle", "", ""),
    ("kernel", "", ""),
    ("other_processes", "", "other"),
    ("residual", "", ""),
    ("tracer", "", ""),
)


@dataclass(frozen=True)
class Hour:
    """The rows of one host and hour, and each statement's sums: its index in the fleet's lives, the
    energy that the rows say, and the true one."""

    rows: pa.Table
    life: I64
    energy_nj: I64
    true_nj: F64


@dataclass(frozen=True)
class _Place:
    """Whose hour it is."""

    fleet: Fleet
    host: int
    hour: int

    @property
    def start_s(self) -> int:
        return self.fleet.plan.begin_s + 3600 * self.hour


@dataclass(frozen=True)
class _Calls:
    """Arrays of n rows of queries."""

    life: I64
    minute: I64  #: of the hour
    calls: I64
    cpu_ns: I64
    energy_nj: I64
    latency_ns: I64


def simulate(fleet: Fleet, host: int, hour: int, *, latency: bool = True) -> Hour:
    """`hour`: since the plan's begin. `latency`: whether rows have histograms; they are most of a
    part's bytes, and no query of a bench reads them."""
    random = np.random.default_rng([fleet.plan.seed, 2, host, hour])
    place = _Place(fleet, host, hour)
    calls = _calls(fleet, host, hour, random)
    errors = _errors(fleet, host, calls)
    true_nj = _true(fleet, host, calls, errors, random)
    size = len(fleet.lives.slot)
    sums = np.zeros(size, np.int64)
    np.add.at(sums, calls.life, calls.energy_nj)
    life = np.flatnonzero(np.bincount(calls.life, minlength=size))
    truth = np.bincount(calls.life, true_nj, minlength=size).astype(np.float64)
    queries = _query_rows(place, calls, errors, latency)
    others = _other_rows(place, calls, random)
    return Hour(pa.concat_tables([others, queries]), life, sums[life], truth[life])


def busy(fleet: Fleet, host: int, minutes: I64) -> F64:
    """The load of a host at these minutes of the plan, relative to the mean over its fleet."""
    hosts = fleet.hosts
    local_h = minutes / 60.0 + hosts.phase_h[host]
    weekday = (fleet.plan.begin.weekday() + local_h // 24) % 7
    day = 1.0 + 0.75 * np.sin((local_h % 24 - 8.0) * np.pi / 12)
    return np.asarray(hosts.load[host] * day * np.where(weekday >= 5, 0.6, 1.0))


def _calls(fleet: Fleet, host: int, hour: int, random: np.random.Generator) -> _Calls:
    """What the host's statements do in the hour, ordered by server, fingerprint and minute."""
    lives, hosts = fleet.lives, fleet.hosts
    minutes = np.arange(hour * MINUTES, (hour + 1) * MINUTES)
    some = np.flatnonzero((lives.born_minute <= minutes[-1]) & (lives.dead_minute > minutes[0]))
    order = np.lexsort((np.array(lives.fingerprints)[some], lives.server[some]))
    some = some[order]
    load = busy(fleet, host, minutes) * random.lognormal(0, 0.15, MINUTES)
    alive = (lives.born_minute[some, None] <= minutes) & (minutes < lives.dead_minute[some, None])
    mean = 60 * fleet.plan.calls_per_s * lives.weight[some, None] * load[None, :]
    calls = random.poisson(np.where(alive, mean, 0.0))
    at, minute = np.nonzero(calls)
    life, number = some[at], calls[at, minute]
    spread = 1 + 0.3 * random.standard_normal(len(life)) / np.sqrt(number)
    work = number * np.maximum(spread, 0.1)
    release = minutes[minute] >= hosts.deploy_minute[host]
    factor = hosts.efficiency[host] * np.where(release, lives.release[life], 1.0)
    return _Calls(
        life,
        minute,
        number.astype(np.int64),
        (lives.cpu_ns[life] * work).astype(np.int64),
        (lives.energy_nj[life] * factor * work).astype(np.int64),
        (lives.latency_ns[life] * work * (1 + 0.2 * load[minute])).astype(np.int64),
    )


def _errors(fleet: Fleet, host: int, calls: _Calls) -> dict[str, F64]:
    """The columns of errors, rounded as the agent rounds them, (n,)."""
    hosts, energy_nj = fleet.hosts, calls.energy_nj.astype(np.float64)
    shares = {
        "total_nj": hosts.total[host],
        "scaled_nj": hosts.scaled[host],
        "loss_nj": hosts.loss[host],
        "unnamed_nj": hosts.unnamed[host],
        "down_nj": hosts.down[host],
        "up_nj": hosts.up[host],
    }
    columns = {name: share * energy_nj for name, share in shares.items()}
    columns["random_nj2"] = EDGES_NJ * energy_nj
    columns["model_nj"] = fleet.lives.model[calls.life] * energy_nj
    return {name: rounded_up(columns[name]).astype(np.float64) for name in ERRORS}


def _true(
    fleet: Fleet, host: int, calls: _Calls, errors: dict[str, F64], random: np.random.Generator
) -> F64:
    """The true energies of the rows, (n,): the rows' energies and errors of the drawn size."""
    hosts = fleet.hosts
    bias = hosts.bias[host]
    sided = errors["unnamed_nj"] + np.where(bias < 0, errors["down_nj"], errors["up_nj"])
    return np.asarray(
        calls.energy_nj
        + np.sqrt(errors["random_nj2"]) * random.standard_normal(len(calls.life))
        + errors["model_nj"] * fleet.lives.model_z[calls.life]
        + errors["total_nj"] / Z95 * hosts.total_z[host]
        + errors["scaled_nj"] / Z95 * hosts.scaled_z[host]
        + errors["loss_nj"] * (1 + hosts.loss_z[host] / Z95)
        + bias * sided
    )


def _query_rows(place: _Place, calls: _Calls, errors: dict[str, F64], latency: bool) -> pa.Table:
    lives, n = place.fleet.lives, len(calls.life)
    columns = {
        "minute": _minutes(place, calls.minute),
        "kind": _texts(["queries"], np.zeros(n, np.int64)),
        "server": _texts(place.fleet.plan.servers, lives.server[calls.life]),
        "database": _texts([f"tenant{i:02d}" for i in range(99)], lives.tenant[calls.life]),
        "name": pa.nulls(n, pa.string()),
        "fingerprint": _texts(lives.fingerprints, calls.life),
        "calls": calls.calls,
        "cpu_ns": calls.cpu_ns,
        "energy_nj": calls.energy_nj,
        **{name: pa.array(value.astype(np.float32)) for name, value in errors.items()},
        "latency_ns": calls.latency_ns,
        "latency": _histograms(calls) if latency else pa.nulls(n, ROWS.field("latency").type),
        **_waits(calls),
    }
    return _table(place, columns, n)


#: Of each kind of wait: the median share of a statement's latency in the minutes that have it, and
#: the share of such minutes.
WAITED = ((0.03, 1.0), (0.02, 0.7), (0.2, 0.7), (0.02, 0.2), (0.0, 0.0), (0.01, 0.1))


def _waits(calls: _Calls) -> dict[str, I64]:
    """Columns of `WAITS`, of all calls. A random generator of their own leaves the other columns
    as they are."""
    random, n = np.random.default_rng(len(calls.life)), len(calls.life)
    columns = {WAITS[0]: calls.latency_ns}
    left_ns = calls.latency_ns.copy()
    for name, (share, minutes) in zip(WAITS[1:], WAITED, strict=True):
        waited = share * random.lognormal(0, 1, n) * (random.random(n) < minutes)
        columns[name] = np.minimum((calls.latency_ns * waited).astype(np.int64), left_ns)
        left_ns -= columns[name]
    return columns


def _other_rows(place: _Place, calls: _Calls, random: np.random.Generator) -> pa.Table:
    """The node's domains and the owners without queries, a row per minute each."""
    queries_nj = np.zeros(MINUTES, np.int64)
    np.add.at(queries_nj, calls.minute, calls.energy_nj)
    means_w = {
        "background": queries_nj.mean() / MINUTE_NJ * 0.08,
        "idle": IDLE_W,
        "kernel": 1.0,
        "other_processes": OTHER_W,
        "residual": 0.05,
        "tracer": 0.1,
    }
    drawn = [means_w[kind] * random.lognormal(0, 0.2, MINUTES) for kind, _, _ in OWNERS]
    energy_nj = (np.array(drawn) * MINUTE_NJ).astype(np.int64)
    package_nj = energy_nj.sum(axis=0) + queries_nj
    dram_nj = (DRAM_SHARE * package_nj).astype(np.int64)
    at = np.repeat(np.arange(len(OWNERS) + 2), MINUTES)
    kinds = [*(kind for kind, _, _ in OWNERS), "node", "node"]
    lossy = place.fleet.hosts.loss[place.host] > 0
    node = at >= len(OWNERS)
    lost = np.where(node, random.integers(1, 200) if lossy else 0, 0)
    columns = {
        "minute": _minutes(place, np.tile(np.arange(MINUTES), len(kinds))),
        "kind": _texts(kinds, at),
        "server": _texts([*(server for _, server, _ in OWNERS), "", ""], at),
        "name": _texts([*(name for _, _, name in OWNERS), "dram", "package"], at),
        "cpu_ns": pa.array(random.integers(0, 10**9, len(at)), mask=node),
        "energy_nj": np.concatenate([energy_nj.ravel(), dram_nj, package_nj]),
        "lost_records": pa.array(lost, mask=~node),
        "lost_cpu_ns": pa.array(lost * 20_000, mask=~node),
    }
    return _table(place, columns, len(at))


def _table(place: _Place, columns: dict[str, object], n: int) -> pa.Table:
    hosts = place.fleet.hosts
    common = {
        "seconds": np.full(n, 60.0, np.float32),
        "grade": _texts(GRADES, np.full(n, hosts.grade[place.host])),
        "policy": _texts([POLICY], np.zeros(n, np.int64)),
        "host_id": _texts([hosts.host_ids[place.host]], np.zeros(n, np.int64)),
    }
    columns = {**common, **columns}
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(n, field.type)
        for field in ROWS
    ]
    return pa.Table.from_arrays(arrays, schema=ROWS)


def _minutes(place: _Place, minute: I64) -> pa.Array:
    return pa.array((place.start_s + 60 * minute) * 1000).cast(ROWS.field("minute").type)


def _texts(names: list[str] | tuple[str, ...], at: I64) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(at, pa.int32()), list(names)).cast(pa.string())


def _histograms(calls: _Calls) -> pa.Array:
    """Calls by half octave from 1 us, log-normal around the row's mean, without zeros behind."""
    mean = 2 * np.log2(np.maximum(calls.latency_ns / calls.calls / 1000, 1.0))
    first = np.clip(mean.astype(np.int64) - 4, 0, LATENCY_BUCKETS - _WIDTH)
    expected = np.cumsum(calls.calls[:, None] * _SHARES, axis=1) + 0.5
    upto = np.minimum(expected.astype(np.int64), calls.calls[:, None])
    upto[:, -1] = calls.calls
    counts = np.diff(upto, axis=1, prepend=0)
    last = _WIDTH - np.argmax(counts[:, ::-1] > 0, axis=1)  # buckets up to the last with calls
    lengths = first + last
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = np.zeros(offsets[-1], np.int64)
    row, bucket = np.nonzero(np.arange(_WIDTH) < last[:, None])
    values[offsets[row] + first[row] + bucket] = counts[row, bucket]
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(values), type=ROWS.field("latency").type
    )


_WIDTH = 10
_AT = (np.arange(_WIDTH) - 4.5) / 2.0
_SHARES = np.exp(-(_AT**2) / 2) / np.exp(-(_AT**2) / 2).sum()
