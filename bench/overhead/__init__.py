# SPDX-License-Identifier: Apache-2.0
"""What tracing costs a database server: the parts of `bench/bench_overhead.py`."""
