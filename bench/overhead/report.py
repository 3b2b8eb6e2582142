# SPDX-License-Identifier: Apache-2.0
"""The benchmark's printed and JSON output."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bench.command import lost_records
from bench.overhead.inside import Inside
from bench.overhead.rounds import Samples
from bench.overhead.stats import Estimate, median_interval, ratio_of_medians, verdict
from bench.overhead.steady import CPU_TARGET, MEMORY_TARGET_MB, RATE, Steady
from bench.overhead.workloads import Workload

OVER_EMPTY_TARGET = 1.5
EMPTY = "empty"


def workload_lines(
    workload: Workload, rung: str, samples: Mapping[str, Samples], inside: Mapping[str, Inside]
) -> list[str]:
    lines = [
        f"{workload.name} on {workload.server}, rung {rung}: part of the untraced throughput lost",
        f"  {'':8}{'throughput':>26}  {'by CPU per transaction':>26}  {'tracing':>8}  target",
    ]
    for mode, one in samples.items():
        lost, cpu = median_interval(one.throughput_lost), median_interval(one.cpu_lost)
        share = median_interval(one.tracing_share).median
        line = f"  {mode:8}{_percent(lost):>26}  {_percent(cpu):>26}  {share:8.1%}"
        if mode != EMPTY:
            line += (
                f"  ≤ {workload.target:.0%}: {verdict(lost, workload.target)}; "
                f"by CPU {verdict(cpu, workload.target)}"
            )
        lines.append(line)
        if one.lost_records:
            lines.append(f"  {'':8}lost records: {lost_records(one.lost_records)}")
    if workload.extreme and EMPTY in samples:
        lines += _over_empty_lines(samples)
    for mode, accounts in inside.items():
        lines += _inside_lines(mode, accounts)
    lines.append(_rounds_line(next(iter(samples.values()))))
    return lines


def _over_empty_lines(samples: Mapping[str, Samples]) -> list[str]:
    lines = []
    for mode, one in samples.items():
        if mode == EMPTY:
            continue
        words = []
        for what, values, under in (
            ("throughput", one.throughput_lost, samples[EMPTY].throughput_lost),
            ("by CPU", one.cpu_lost, samples[EMPTY].cpu_lost),
        ):
            ratio = ratio_of_medians(values, under)
            # If the sign of the lower cost is unknown, so is the ratio.
            known = median_interval(under).low > 0.0
            word = verdict(ratio, OVER_EMPTY_TARGET) if known else "within noise"
            words.append(f"{what} {_times(ratio)} {word}")
        lines.append(f"  {mode} over empty, ≤ {OVER_EMPTY_TARGET:g}: {'; '.join(words)}")
    return lines


def _inside_lines(mode: str, inside: Inside) -> list[str]:
    """The programs that matter: at least a thousandth of a percent of the load's CPU time."""
    whole = inside.programs_share + inside.tracing_share
    lines = [
        f"  inside {mode}, as parts of the load's CPU time: programs {inside.programs_share:.1%} "
        f"+ tracer and reader {inside.tracing_share:.1%} = {whole:.1%}"
    ]
    lines += [
        f"    {one.program:24}{one.runs_per_transaction:8.3f} runs x {one.ns_per_run:6.0f} ns = "
        f"{one.ns_per_transaction:7.0f} ns per transaction, {one.share:6.2%}"
        for one in inside.firings
        if one.share >= 1e-5
    ]
    return lines


def _rounds_line(one: Samples) -> str:
    estimate = median_interval(one.throughput_lost)
    return f"  medians of {estimate.count} rounds with {estimate.coverage:.1%} intervals"


def steady_lines(results: Sequence[Steady], load: str) -> list[str]:
    """`load`: the requested rate per second; the measured rate shows how much was reached."""
    lines = [f"{load}, {RATE:,} a second:"]
    for one in results:
        cpu = "met" if one.tracer_cpu <= CPU_TARGET else "missed"
        memory = "met" if one.tracer_mb <= MEMORY_TARGET_MB else "missed"
        lines.append(
            f"  {one.mode:8}{one.rate:8,.0f}/s  tracer {one.tracer_cpu:5.1%} of a core "
            f"(≤ {CPU_TARGET:.0%}: {cpu}), {one.tracer_mb:.0f} MB resident "
            f"(≤ {MEMORY_TARGET_MB:.0f}: {memory}); reader {one.reader_cpu:.1%}, "
            f"{one.reader_mb:.0f} MB"
        )
        if one.mode == "record":
            lines.append(f"  {'':8}lost records (0): {lost_records(one.lost_records)}")
    return lines


def document(
    begin: Mapping[str, Any],
    end: Mapping[str, Any],
    loads: Mapping[str, tuple[Workload, Mapping[str, Samples], Mapping[str, Inside]]],
    steady: Sequence[Steady],
) -> dict[str, Any]:
    """Everything that was measured, including rounds. Schema qjoule.bench-overhead/1."""
    return {
        "schema": "qjoule.bench-overhead/1",
        "machine": dict(begin),
        "load_average_at_end": end["load_average"],
        "workloads": {
            name: {
                "target": workload.target,
                "modes": {
                    mode: {
                        "throughput_lost": dataclasses.asdict(median_interval(one.throughput_lost)),
                        "cpu_lost": dataclasses.asdict(median_interval(one.cpu_lost)),
                        "rounds": dataclasses.asdict(one),
                    }
                    for mode, one in samples.items()
                },
                "inside": {mode: dataclasses.asdict(one) for mode, one in inside.items()},
            }
            for name, (workload, samples, inside) in loads.items()
        },
        "steady": [dataclasses.asdict(one) for one in steady],
    }


def _percent(estimate: Estimate) -> str:
    return f"{estimate.median:6.1%} [{estimate.low:6.1%}, {estimate.high:6.1%}]"


def _times(estimate: Estimate) -> str:
    return f"{estimate.median:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
