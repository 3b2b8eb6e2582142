# SPDX-License-Identifier: Apache-2.0
"""YCSB workload A on each server, with tracing and without."""
