# SPDX-License-Identifier: Apache-2.0
"""How accurate the attributed joules are, measured on simulated machines whose energy is known.

`scenarios.make_case(scenario, seed)` draws a server (`mixes`, `workload`: who ran when) and a
machine (`machine`, `activity`). It computes the energy and its owners (`physics`). It returns what
a tracer (`tracer`), energy counters (`rapl`) and hardware counters (`pmu`) show of that, with a
calibration run of the same machine (`calibration_run`) and the truth. The simulator shares no code
with the estimator except the types of the arrays that pass between them.
"""
