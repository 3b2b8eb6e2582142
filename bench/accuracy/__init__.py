# SPDX-License-Identifier: Apache-2.0
"""How true the attributed joules are: a machine whose energy is known, and what it shows of it.

`scenarios.make_case(scenario, seed)` draws a server (`mixes`, `workload`: who ran when) and a
machine (`machine`, `activity`), sweeps over them (`physics`: watts, and whose they are) and returns
what a tracer (`tracer`), energy counters (`rapl`) and hardware counters (`pmu`) show of it, with a
calibration run of the same machine (`calibration_run`) and the truth. The simulator shares no code
with the estimator but the types of the arrays that pass between them.
"""
