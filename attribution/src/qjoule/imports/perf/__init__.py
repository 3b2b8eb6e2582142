# SPDX-License-Identifier: Apache-2.0
"""Traces from `perf record` and `perf stat`, for hosts where BPF is not allowed.

`lines` reads records, `header` what perf says of the host, `scan` looks through all of them once.
`tasks`, `queries` and `cpus` follow threads, queries and processors, as the BPF programs do;
`energy` reads or estimates the counters; `stream` makes of it the blocks that the tracer would have
sent, so that `stream.recording` writes the trace. `commands` says what to run on the host.
"""
