"""What tracing costs a database server: the parts of `bench/bench_overhead.py`."""
