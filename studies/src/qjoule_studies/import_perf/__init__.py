# SPDX-License-Identifier: Apache-2.0
"""Traces from `perf record` and `perf stat`, for hosts where BPF is not allowed.

`lines` reads records, `header` reads perf's facts about the host, `scan` reads all records once.
`tasks`, `queries` and `cpus` follow threads, queries and processors, as the BPF programs do;
`energy` reads or estimates the counters. `stream` turns all that into the blocks that the tracer
would have sent, so that `stream.ingest` writes the trace. `probes` makes the host's script.
"""
