# SPDX-License-Identifier: Apache-2.0
"""The benchmark's printed and JSON output."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.command import lost_records
from bench.overhead.inside import Inside
from bench.overhead.rounds import CPU_TARGET, MEMORY_TARGET_MB, RATE, Samples, Steady
from bench.overhead.stats import Estimate, median_interval, ratio_of_medians, verdict
from bench.overhead.workloads import Workload

OVER_EMPTY_TARGET = 1.5
EMPTY, LIVE = "empty", "live"
SHOWN = {LIVE: "top"}
LIVE_SHARE = 0.5  #: of what recording may cost: what `top` may
OUTSIDE_TARGET_US = 0.3  #: CPU time per query, of tracer and reader

#: Saturated by mode, and by the kernel's accounts by mode, attach mode and options.
OfLoad = tuple[Workload, Mapping[str, Samples], Mapping[tuple[str, str, str], Inside]]


def workload_lines(
    workload: Workload, attach_mode: str, samples: Mapping[str, Samples]
) -> list[str]:
    """What a saturated server lost."""
    lines = [
        f"{workload.name} on {workload.server}, {attach_mode}: part of untraced throughput lost",
        f"  {'':8}{'throughput':>26}  {'by CPU per transaction':>26}  {'tracing':>8}  target",
    ]
    for mode, sample in samples.items():
        rate, cpu = median_interval(sample.throughput_lost), median_interval(sample.cpu_lost)
        share = median_interval(sample.tracing_share).median
        line = f"  {SHOWN.get(mode, mode):8}{_percent(rate):>26}  {_percent(cpu):>26}  {share:8.1%}"
        if mode != EMPTY:
            target = workload.target * (LIVE_SHARE if mode == LIVE else 1.0)
            line += f"  ≤ {target:.1%}: {verdict(rate, target)}; by CPU {verdict(cpu, target)}"
        lines.append(line)
        if sample.lost_records:
            lines.append(f"  {'':8}lost records: {lost_records(sample.lost_records)}")
    if workload.extreme and EMPTY in samples:
        lines += _over_empty_lines(samples)
    lines.append(_rounds_line(next(iter(samples.values()))))
    return lines


def places_lines(workload: Workload, attach_mode: str, samples: Mapping[str, Samples]) -> list[str]:
    """CPU time per query at a fixed rate: what tracing adds, and where."""
    first = next(iter(samples.values())).places
    busy, rate = median(first.busy), median(first.rate) * workload.statements
    untraced = {name: median(values) for name, values in first.untraced.items()}
    lines = [
        f"{workload.name} on {workload.server}, mode {attach_mode}: {rate:,.0f} queries a second, "
        f"untraced {busy:.0%} of the machine",
        "  CPU time per query in µs, untraced: "
        + ", ".join(f"{name} {_us(ns, workload):.2f}" for name, ns in untraced.items()),
    ]
    for mode, sample in samples.items():
        places = sample.places
        added = {name: _us_of(values, workload) for name, values in places.added.items()}
        outside = _us_of(places.outside_kernel, workload)
        lines += [
            f"  {SHOWN.get(mode, mode):8}adds "
            + ", ".join(f"{name} {_micro(cost)}" for name, cost in added.items()),
            f"  {'':8}outside the kernel {_micro(outside)} "
            f"(≤ {OUTSIDE_TARGET_US:g}: {verdict(outside, OUTSIDE_TARGET_US)}): "
            f"tracer {_micro(_us_of(places.tracer, workload))}, "
            f"reader {_micro(_us_of(places.reader, workload))}; on a CPU "
            f"{median(places.tracer_runs_per_s):.0f} and {median(places.reader_runs_per_s):.0f} "
            f"times a second",
        ]
        if sample.lost_records:
            lines.append(f"  {'':8}lost records: {lost_records(sample.lost_records)}")
    lines.append(_rounds_line(next(iter(samples.values()))))
    return lines


def inside_lines(workload: Workload, title: str, inside: Inside) -> list[str]:
    """The kernel's own accounts of one mode, per query."""
    per = workload.statements
    lines = [
        f"  {title}: programs {inside.programs_ns / per:.0f} ns per query, of which empty "
        f"ones have {inside.empty_ns / per:.0f}, tracer {median(inside.tracer_ns) / per:.0f}, "
        f"reader {median(inside.reader_ns) / per:.0f}"
    ]
    lines += [
        f"    {firing.program:24}{firing.runs_per_transaction / per:8.3f} runs x "
        f"{firing.ns_per_run:6.0f} ns = {firing.ns_per_transaction / per:7.0f} ns"
        for firing in inside.firings
        if firing.ns_per_transaction / per >= 1.0
    ]
    return lines


def _us(ns: float, workload: Workload) -> float:
    """µs per query, of ns per transaction."""
    return ns / workload.statements / 1000.0


def _us_of(values: Sequence[float], workload: Workload) -> Estimate:
    return median_interval([_us(ns, workload) for ns in values])


def _micro(cost: Estimate) -> str:
    return f"{cost.median:.2f} [{cost.low:.2f}, {cost.high:.2f}]"


def _over_empty_lines(samples: Mapping[str, Samples]) -> list[str]:
    lines = []
    for mode, sample in samples.items():
        if mode == EMPTY:
            continue
        comparisons = []
        for quantity, values, under in (
            ("throughput", sample.throughput_lost, samples[EMPTY].throughput_lost),
            ("by CPU", sample.cpu_lost, samples[EMPTY].cpu_lost),
        ):
            ratio = ratio_of_medians(values, under)
            # If the sign of the lower cost is unknown, so is the ratio.
            is_significant = median_interval(under).low > 0.0
            word = verdict(ratio, OVER_EMPTY_TARGET) if is_significant else "within noise"
            comparisons.append(f"{quantity} {_times(ratio)} {word}")
        lines.append(f"  {mode} over empty, ≤ {OVER_EMPTY_TARGET:g}: {'; '.join(comparisons)}")
    return lines


def _rounds_line(sample: Samples) -> str:
    estimate = median_interval(sample.throughput_lost)
    return f"  medians of {estimate.count} rounds with {estimate.coverage:.1%} intervals"


def steady_lines(results: Sequence[Steady], load: str) -> list[str]:
    """`load`: the requested rate per second; the measured rate shows how much was reached."""
    lines = [f"{load}, {RATE:,} a second:"]
    for result in results:
        cpu = "met" if result.tracer_cpu <= CPU_TARGET else "missed"
        memory = "met" if result.tracer_mb <= MEMORY_TARGET_MB else "missed"
        lines.append(
            f"  {result.mode:8}{result.rate:8,.0f}/s  tracer {result.tracer_cpu:5.1%} of a core "
            f"(≤ {CPU_TARGET:.0%}: {cpu}), {result.tracer_mb:.0f} MB resident "
            f"(≤ {MEMORY_TARGET_MB:.0f}: {memory}); reader {result.reader_cpu:.1%}, "
            f"{result.reader_mb:.0f} MB"
        )
        if result.mode == "record":
            lines.append(f"  {'':8}lost records (0): {lost_records(result.lost_records)}")
    return lines


def document(
    begin: Mapping[str, Any],
    end: Mapping[str, Any],
    loads: Mapping[str, OfLoad],
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
                        "throughput_lost": dataclasses.asdict(
                            median_interval(sample.throughput_lost)
                        ),
                        "cpu_lost": dataclasses.asdict(median_interval(sample.cpu_lost)),
                        "rounds": dataclasses.asdict(sample),
                    }
                    for mode, sample in samples.items()
                },
                "inside": {
                    " ".join(filter(None, key)): dataclasses.asdict(measured)
                    for key, measured in inside.items()
                },
            }
            for name, (workload, samples, inside) in loads.items()
        },
        "steady": [dataclasses.asdict(result) for result in steady],
    }


def _percent(estimate: Estimate) -> str:
    return f"{estimate.median:6.1%} [{estimate.low:6.1%}, {estimate.high:6.1%}]"


def _times(estimate: Estimate) -> str:
    return f"{estimate.median:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
