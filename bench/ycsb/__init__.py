"""YCSB workload A on each server, with tracing and without."""
