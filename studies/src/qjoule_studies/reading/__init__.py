# SPDX-License-Identifier: Apache-2.0
"""Read-only sessions of the workload `replay`: a module for each server.

Each has `DIALECT`, the language of its statements; `FUNCTIONS` and `PREFIXES`, names of functions
that write, wait, lock or reach outside; and `ReadOnly`, a `Session`.
"""
