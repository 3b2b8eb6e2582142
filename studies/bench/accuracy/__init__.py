# SPDX-License-Identifier: Apache-2.0
"""How accurate the attributed joules are, measured on simulated machines whose energy is known.

`scenarios.make_case("family/scenario", seed)` draws a server (`plans`, `mixes`, `workload`: who ran
when) and a machine (`machine`, `activity`, and by `families` the `effects` it has). It computes the
energy and its owners (`physics`, `sweep`; the equations and their sources are in `PHYSICS.md`). It
returns what a tracer (`tracer`), energy counters (`rapl`) and hardware counters (`pmu`) show of
that, with a calibration run of the same machine (`calibration_run`) and the truth. `history` draws
several recordings of one machine. The simulator shares no code with the estimator except the types
of the arrays that pass between them.

`harness` runs all methods and keeps their errors (`outcomes`); `figures` adds them up; `report`,
`family_report` and `goals` print them; `stored` writes and reads them.
"""
