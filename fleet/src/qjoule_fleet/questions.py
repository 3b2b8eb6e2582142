# SPDX-License-Identifier: Apache-2.0
"""SQL that sums a fleet's rows by group, with 95 % intervals: the same for every engine.

Two steps. *Cells* are sums by group, host and shape. They are additive, so they can be made from
any division of the parts and summed again (`merged`). *Groups* are made from all cells, because how
errors add up depends on their correlation:

- errors of windows' edges (`random_nj2`) are independent: variances add;
- the model's error is common to a shape: it adds up over minutes and hosts, and in quadrature over
  shapes;
- errors of a host's total, of its multiplexed counters, of records without an owner and of lost
  time add up over a host's minutes, and in quadrature over hosts. For estimated energy, hosts share
  a power model, so errors add up over hosts too;
- `down_nj`, `up_nj` and the expected lost energy add up everywhere.

For a single row this is `qjoule.model.interval.EnergyErrors.ends`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from qjoule.api import UsageError
from qjoule.api.model import Z95
from qjoule.api.rollups import ERRORS, HELPERS, WAITS
from qjoule_fleet.views import text

#: Sums that are exact integers. `WAITS` and `HELPERS` are null if none are recorded.
INTEGERS = ("calls", "cpu_ns", "energy_nj", "latency_ns", *WAITS, *HELPERS)
SUMS = (*INTEGERS, "without_error", *ERRORS)
LATENCY_BUCKETS = 48
#: Rows with different values of these columns must not be added up.
CLASS = ("grade", "policy")
MEASURED, MIXED = "measured", "mixed"
_PLAIN_KEYS = ("fingerprint", "host", "server", "database")
_ALIAS = {"shape": "fingerprint"}
RELEASE, TAG = "release", "tag:"
_TAG = re.compile(r"[^\x00-\x1f\x7f]{1,128}")
SORTS = {
    "energy": "energy_nj",
    "calls": "calls",
    "cpu": "cpu_ns",
    "j_per_call": "case when calls > 0 then cast(energy_nj as double) / calls end",
    "power": "case when cpu_ns > 0 then cast(energy_nj as double) / cpu_ns end",
}


@dataclass(frozen=True)
class By:
    """Grouping keys. `keys`: as shown, without duplicates."""

    keys: tuple[str, ...]
    mix_grades: bool = False

    @property
    def tag(self) -> str:
        """The key of the tag to group by, or ''."""
        return next((key[len(TAG) :] for key in self.keys if key.startswith(TAG)), "")

    @property
    def release(self) -> bool:
        return RELEASE in self.keys

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the keys' columns, without grade and policy, which always have columns."""
        return tuple(f"key{i}" for i, key in enumerate(self.keys) if key not in CLASS)

    def expressions(self) -> list[str]:
        columns = []
        for key in self.keys:
            if key in CLASS:
                continue
            column = "value" if key.startswith(TAG) else key
            columns.append(f"coalesce({'r.release' if key == RELEASE else f'q.{column}'}, '')")
        return columns


def parse_by(by: str, *, mix_grades: bool = False) -> By:
    """Parses keys such as `host,tag:tenant`. Raises `UsageError` for unknown keys."""
    keys = []
    for word in by.split(","):
        key = _ALIAS.get(word.strip(), word.strip())
        tag = key[len(TAG) :] if key.startswith(TAG) else None
        if key not in (*_PLAIN_KEYS, *CLASS, RELEASE) and not (tag and _TAG.fullmatch(tag)):
            allowed = ", ".join(("shape", *_PLAIN_KEYS, RELEASE, *CLASS, "tag:KEY"))
            raise UsageError(f"--by {word.strip()!r}: give {allowed}, or several with commas")
        if key not in keys:
            keys.append(key)
    if sum(key.startswith(TAG) for key in keys) > 1:
        raise UsageError("--by: one tag at a time, because rows of tags have one key each")
    return By(tuple(keys), mix_grades)


def cells(by: By) -> str:
    """SQL for sums by group, class, host and shape, from the views."""
    keys = ", ".join(f"{e} as {c}" for e, c in zip(by.expressions(), by.columns, strict=True))
    grade = text(MIXED) if by.mix_grades else "q.grade"
    group = [*by.expressions(), *([] if by.mix_grades else ["q.grade"])]
    group += ["q.policy", "q.host_id", "coalesce(q.fingerprint, '')"]
    sums = [f"sum(q.{name}) as {name}" for name in INTEGERS]
    sums.append(
        "sum(case when q.model_nj is null and q.energy_nj <> 0 then 1 else 0 end) as without_error"
    )
    sums += [f"coalesce(sum(cast(q.{name} as double)), 0) as {name}" for name in ERRORS]
    chosen = [*([keys] if keys else []), f"{grade} as grade", "q.policy as policy"]
    chosen += ["q.host_id as host_id", "coalesce(q.fingerprint, '') as fingerprint", *sums]
    return f"select {_lines(chosen)}\nfrom {_source(by)}\ngroup by {', '.join(group)}"


def _lines(expressions: Sequence[str]) -> str:
    return ",\n  ".join(expressions)


def _source(by: By) -> str:
    relation = f"(select * from tags where tag = {text(by.tag)}) q" if by.tag else "queries q"
    if by.release:
        relation += (
            "\nleft join servers r on q.host_id = r.host_id and q.server = r.server\n"
            "  and q.minute >= r.begins and q.minute < r.ends"
        )
    return relation


def merged(by: By, relation: str) -> str:
    """SQL that sums cells of several divisions of the parts."""
    names = [*by.columns, *CLASS, "host_id", "fingerprint"]
    sums = [f"sum({name}) as {name}" for name in SUMS]
    return f"select {', '.join([*names, *sums])} from {relation} group by {', '.join(names)}"


def groups(by: By, relation: str = "cells") -> str:
    """SQL for a row per group and class, with its 95 % interval in nJ, from all cells.

    `same_total_…`: the interval without the error of the hosts' totals. `in_doubt_nj`: energy that
    may be wrong because of lost or unnamed records.
    """
    names = ", ".join([*by.columns, *CLASS])
    exact = ", ".join(f"sum({name}) as {name}" for name in (*INTEGERS, "without_error"))
    across = ("total_nj", "scaled_nj", "unnamed_nj", "loss_nj")
    by_host = ", ".join(f"sum({name}) as {name}" for name in (*across, "down_nj", "up_nj"))
    hosts = ", ".join(
        f"case when grade = {text(MEASURED)} then sqrt(sum({name} * {name})) else sum({name}) end"
        f" as {name}"
        for name in across
    )
    low, high = _ends("total_nj")
    same_low, same_high = _ends("0.0")
    return f"""\
with by_shape as (
  select {names}, fingerprint, {exact}, sum(random_nj2) as random_nj2, sum(model_nj) as model_nj
  from {relation} group by {names}, fingerprint
),
shapes as (
  select {names}, count(*) as shapes, {exact}, sum(random_nj2) as random_nj2,
    sqrt(sum(model_nj * model_nj)) as model_nj
  from by_shape group by {names}
),
by_host as (
  select {names}, host_id, {by_host} from {relation} group by {names}, host_id
),
hosts as (
  select {names}, count(*) as hosts, {hosts}, sum(loss_nj) as lost_nj,
    sum(down_nj) as down_nj, sum(up_nj) as up_nj
  from by_host group by {names}
)
select {names}, {", ".join(INTEGERS)}, hosts, shapes,
  case when without_error = 0 then {low} end as low_nj,
  case when without_error = 0 then {high} end as high_nj,
  case when without_error = 0 then {same_low} end as same_total_low_nj,
  case when without_error = 0 then {same_high} end as same_total_high_nj,
  lost_nj + unnamed_nj as in_doubt_nj
from shapes join hosts using ({names})"""


def _ends(total_nj: str) -> tuple[str, str]:
    half = (
        f"sqrt({Z95 * Z95!r} * (greatest(random_nj2, 0) + model_nj * model_nj)"
        f" + scaled_nj * scaled_nj + {total_nj} * {total_nj} + loss_nj * loss_nj)"
    )
    middle = "cast(energy_nj as double) + lost_nj"
    low = f"floor(greatest({middle} - {half} - unnamed_nj - down_nj, 0))"
    return low, f"ceil({middle} + {half} + unnamed_nj + up_nj)"


def top(by: By, sort: str, limit: int | None, relation: str = "cells") -> str:
    """SQL for the first groups, in an order that is unique for any two rows."""
    keys = ", ".join([*by.columns, *CLASS])
    most = f" limit {limit}" if limit is not None else ""
    return (
        f"select * from (\n{groups(by, relation)}\n) g\n"
        f"order by {SORTS[sort]} desc nulls last, {keys}{most}"
    )


def latencies(by: By) -> str:
    """SQL for calls by half octave of latency, for the groups in the relation `wanted`."""
    sums = ", ".join(
        f"coalesce(sum(list_extract(q.latency, {i})), 0) as b{i}"
        for i in range(1, LATENCY_BUCKETS + 1)
    )
    keys = [*zip(by.columns, by.expressions(), strict=True)]
    matches = [f"w.{column} = {expression}" for column, expression in keys]
    matches += ["w.policy = q.policy"] + ([] if by.mix_grades else ["w.grade = q.grade"])
    names = ", ".join(f"w.{name}" for name in (*by.columns, *CLASS))
    return (
        f"select {names}, {sums}\nfrom {_source(by)}\njoin wanted w on {' and '.join(matches)}\n"
        f"group by {names}"
    )


def merged_latencies(by: By, relation: str) -> str:
    names = ", ".join([*by.columns, *CLASS])
    sums = ", ".join(f"sum(b{i}) as b{i}" for i in range(1, LATENCY_BUCKETS + 1))
    return f"select {names}, {sums} from {relation} group by {names}"


def owned() -> str:
    """SQL for sums by host, hour, class and kind, and for nodes by domain. They are additive."""
    keys = ("host_id", *CLASS, "kind")
    hour = "date_trunc('hour', minute)"
    domain = "case when kind = 'node' then name else '' end"
    sums = [f"coalesce(sum({name}), 0) as {name}" for name in _KEPT]
    return (
        f"select {hour} as hour, {', '.join(keys)}, {domain} as domain,\n  {_lines(sums)}\n"
        f"from spans\ngroup by {hour}, {', '.join(keys)}, {domain}"
    )


def merged_owned(relation: str) -> str:
    names = ", ".join(("hour", "host_id", *CLASS, "kind", "domain"))
    sums = ", ".join(f"sum({name}) as {name}" for name in _KEPT)
    return f"select {names}, {sums} from {relation} group by {names}"


def totals(relation: str = "owned") -> str:
    """SQL for the measured energy and its owners, by class and kind.

    `node` is each host's main domain: the one to which the owners' energies of the same hour add
    up, else the largest, so that missing energy is visible. It has the least and the most relative
    error of a total, over hosts and hours: each query repeats that of its host.
    """
    keys = "hour, host_id, grade, policy"
    return f"""\
with whole as (
  select {keys}, sum(energy_nj) as spent_nj from {relation} where kind <> 'node' group by {keys}
),
placed as (
  select m.*, row_number() over (
    partition by m.hour, m.host_id, m.grade, m.policy
    order by case when m.energy_nj = w.spent_nj then 0 else 1 end, m.energy_nj desc, m.domain
  ) as place
  from {relation} m left join whole w on m.hour = w.hour and m.host_id = w.host_id
    and m.grade = w.grade and m.policy = w.policy
  where m.kind = 'node'
),
errors as (
  select {keys}, total_nj / cast(nullif(energy_nj, 0) as double) as error
  from {relation} where kind = 'queries'
)
select grade, policy, kind, count(distinct host_id) as hosts, {_sums()},
  null as least_error, null as most_error
from {relation} where kind <> 'node' group by grade, policy, kind
union all
select grade, policy, 'node' as kind, count(distinct host_id) as hosts, {_sums()},
  min(error) as least_error, max(error) as most_error
from placed left join errors using ({keys}) where place = 1 group by grade, policy"""


#: Columns that `owned` sums.
OWNED = ("energy_nj", "cpu_ns", "calls", "lost_records", "lost_cpu_ns")
_KEPT = (*OWNED, "total_nj")


def _sums() -> str:
    return ", ".join(f"sum({name}) as {name}" for name in OWNED)
