# SPDX-License-Identifier: Apache-2.0
"""Roles of threads, from their names."""

from __future__ import annotations

import pytest

from qjoule.trace.roles import thread_role


@pytest.mark.parametrize(
    ("comm", "role"),
    [
        ("worker-12", "worker-?"),
        ("worker12", "worker?"),
        ("GC Thread#0", "GC Thread#?"),
        ("G1 Conc#0", "G1 Conc#?"),
        ("G1 Main Marker", "G1 Main Marker"),
        ("C2 CompilerThre", "C2 CompilerThre"),
        ("Native-Transpor", "Native-Transpor"),
        ("ReadStage-3", "ReadStage-?"),
        ("pool-1-thread-22", "pool-?-thread-?"),
        ("Thread-7 (serve)", "Thread-? (serve)"),
        ("io_thd_1", "io_thd_?"),
        ("rocksdb:low0", "rocksdb:low?"),
        ("conn1234", "conn?"),
        ("VM Thread", "VM Thread"),
        ("V8 DefaultWorke", "V8 DefaultWorke"),
        ("h2-pool-3", "h2-pool-?"),
        ("", ""),
    ],
)
def test_the_number_of_a_worker_is_no_role(comm: str, role: str) -> None:
    assert thread_role(comm, "java") == role


def test_a_thread_that_nobody_named_keeps_its_processs_name() -> None:
    assert thread_role("python3.11", "python3.11") == "python3.11"
