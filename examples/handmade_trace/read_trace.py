# SPDX-License-Identifier: Apache-2.0
"""Reads a trace with qjoule's reader: prints its description and who had the CPU."""

from __future__ import annotations

import sys

from qjoule.trace import Trace


def main() -> None:
    trace = Trace(sys.argv[1] if len(sys.argv) > 1 else "handmade.qjoule")
    meta = trace.meta
    duration_ms = (trace.end_ns - trace.begin_ns) / 1e6
    print(f"{meta.host}: {duration_ms:.0f} ms, complete: {trace.complete}")
    print(f"energy: {meta.energy.source} ({meta.energy.grade}), readings: {trace.rows('energy')}")
    for problem in trace.problems:
        print(f"problem: {problem}")
    owners = trace.pandas("owners").set_index("owner")
    for segments in trace.iter_segments():
        for segment in segments.to_pylist():
            owner = owners.loc[segment["owner"]]
            span_ms = (segment["t1_ns"] - segment["t0_ns"]) / 1e6
            query = "" if segment["query"] is None else f", query {segment['query']}"
            print(f"cpu {segment['cpu']}: {span_ms:.0f} ms of {owner.kind} {owner.comm!r}{query}")
    for shape in trace.table("shapes").to_pylist():
        print(f"{shape['fingerprint']}: {shape['text']}")


if __name__ == "__main__":
    main()
