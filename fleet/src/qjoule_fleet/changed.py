# SPDX-License-Identifier: Apache-2.0
"""What a deploy changed: each shape's joules per call on two sides, compared host by host.

Each host is compared with itself wherever it has both sides. Then the errors of its power model and
of its total are on both sides and cancel, and the spread of the hosts' ratios is the uncertainty
(`qjoule.model.compared`). Where no host has both sides, hosts of one side are compared with those
of the other, and all errors count. Each grade and idle policy is compared by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qjoule.api.comparison import Form, MadeWith, RunForms, Sides, compare_sides, match
from qjoule_fleet.top import Row

_ITSELF = "each host against itself"


@dataclass(frozen=True)
class Class:
    """The comparison of one grade and idle policy.

    `a`, `b`: the hosts of both sides, as runs. `left_out`: hosts that have only one side.
    """

    sides: Sides
    a: list[RunForms]
    b: list[RunForms]
    left_out: list[str]
    alone_a: list[Form]
    alone_b: list[Form]


_Hosts = dict[str, list[Row]]
_Classes = dict[tuple[str, str], _Hosts]


def compare(before: Sequence[Row], after: Sequence[Row]) -> list[Class]:
    """Compares rows by host and fingerprint; classes that only one side has are in `unmatched`."""
    a, b = _classes(before), _classes(after)
    found = []
    for class_ in sorted(a.keys() & b.keys()):
        if one := _compared(class_, a[class_], b[class_]):
            found.append(one)
    return found


def unmatched(before: Sequence[Row], after: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Side (A or B), grade and policy of what has no partner."""
    a, b = set(_classes(before)), set(_classes(after))
    return [("A", *one) for one in sorted(a - b)] + [("B", *one) for one in sorted(b - a)]


def _classes(rows: Sequence[Row]) -> _Classes:
    found: _Classes = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row.grade, row.policy][row.keys["host"]].append(row)
    return found


def _compared(class_: tuple[str, str], a: _Hosts, b: _Hosts) -> Class | None:
    both = sorted(a.keys() & b.keys())
    hosts_a, hosts_b = (both, both) if both else (sorted(a), sorted(b))
    runs_a = _runs(class_, {host: a[host] for host in hosts_a}, paired=bool(both))
    runs_b = _runs(class_, {host: b[host] for host in hosts_b}, paired=bool(both))
    old, new = _forms(runs_a), _forms(runs_b)
    matched = match(old, new)
    if not matched:
        return None
    names = {form.name for form, _ in matched}
    return Class(
        compare_sides(runs_a, runs_b, matched),
        runs_a,
        runs_b,
        sorted((a.keys() ^ b.keys()) if both else ()),
        [form for form in old if form.name not in names],
        [form for form in new if form.name not in names],
    )


def _runs(
    class_: tuple[str, str], hosts: Mapping[str, Sequence[Row]], *, paired: bool
) -> list[RunForms]:
    grade, policy = class_
    return [
        RunForms(
            host,
            [_form(row) for row in rows],
            MadeWith(
                grade, policy, "as the hosts measured", _ITSELF if paired else host, "its own"
            ),
        )
        for host, rows in hosts.items()
    ]


def _form(row: Row) -> Form:
    same = row.same_total_nj_ci95
    return Form(
        row.keys["fingerprint"],
        row.text,
        row.calls,
        row.j_per_call,
        row.j_per_call_ci95,
        row.latency_ns_mean,
        loss_share=row.in_doubt_nj / row.energy_nj if row.energy_nj else 0.0,
        same_total_ci95=same and (same[0] / 1e9 / row.calls, same[1] / 1e9 / row.calls)
        if row.calls
        else None,
    )


def _forms(runs: Sequence[RunForms]) -> list[Form]:
    """Each statement once, those of most energy first."""
    first: dict[str, Form] = {}
    energy_j: dict[str, float] = defaultdict(float)
    for run in runs:
        for form in run.forms:
            first.setdefault(form.name, form)
            energy_j[form.name] += (form.j_per_call or 0.0) * form.calls
    return sorted(first.values(), key=lambda form: (-energy_j[form.name], form.name))
