# SPDX-License-Identifier: Apache-2.0
"""Packages, cores and siblings as the tracer reads them from a tree like sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracer_parts.parts import MAX_CPUS, firsts, rings, topology, write_topology

#: Two packages of two cores with two threads, numbered as Linux does on servers.
TWO_PACKAGES = [(0, [0, 4]), (0, [1, 5]), (1, [2, 6]), (1, [3, 7])]


def test_threads_of_a_core_name_its_lowest_cpu(tmp_path: Path) -> None:
    assert topology(write_topology(tmp_path, TWO_PACKAGES)) == [
        (0, 0, 0, 0),
        (1, 0, 1, 1),
        (2, 1, 0, 2),
        (3, 1, 1, 3),
        (4, 0, 0, 0),
        (5, 0, 1, 1),
        (6, 1, 0, 2),
        (7, 1, 1, 3),
    ]


def test_cores_are_told_apart_where_the_kernel_numbers_them_alike(tmp_path: Path) -> None:
    """core_id repeats across the dies of a package, and is 0 everywhere in some virtual
    machines.
    """
    tree = write_topology(tmp_path, [(0, [cpu]) for cpu in range(4)])
    for cpu in range(4):
        (tree / f"cpu{cpu}/topology/core_id").write_text("0\n")
    assert [(core, sibling) for _, _, core, sibling in topology(tree)] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
    ]


def test_offline_cpus_are_left_out(tmp_path: Path) -> None:
    tree = write_topology(tmp_path, [(0, [0, 2]), (0, [3])])
    (tree / "online").write_text("0,2-3\n")
    assert topology(tree) == [(0, 0, 0, 0), (2, 0, 0, 0), (3, 0, 1, 3)]


def test_a_cpu_whose_topology_is_not_told_is_its_own_core_of_package_0(tmp_path: Path) -> None:
    tree = write_topology(tmp_path, [(1, [0, 1])])
    (tree / "online").write_text("0-2\n")
    assert topology(tree)[2] == (2, 0, 0, 2)


@pytest.mark.parametrize("package", ["-1", "", "x", "65536", "99999999999999999999"])
def test_a_package_that_is_no_number_is_0(tmp_path: Path, package: str) -> None:
    """If the firmware gives no package, the kernel shows -1."""
    tree = write_topology(tmp_path, [(3, [0])])
    (tree / "cpu0/topology/physical_package_id").write_text(f"{package}\n")
    assert topology(tree) == [(0, 0, 0, 0)]


@pytest.mark.parametrize("siblings", ["5", "4000000000", "", "-1", "x"])
def test_a_list_of_siblings_without_the_cpu_is_not_believed(tmp_path: Path, siblings: str) -> None:
    tree = write_topology(tmp_path, [(0, [0]), (0, [1])])
    (tree / "cpu1/topology/thread_siblings_list").write_text(f"{siblings}\n")
    assert topology(tree)[1] == (1, 0, 1, 1)


def test_no_tree(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        topology(tmp_path)


def test_rings_go_round_the_cpus_of_a_core(tmp_path: Path) -> None:
    cores = [*TWO_PACKAGES, (1, [8, 9, 10])]
    most, following = rings(topology(write_topology(tmp_path, cores)))
    assert most == 3
    for _, cpus in cores:
        walked = [cpus[0]]
        while following[walked[-1]] != cpus[0]:
            walked.append(following[walked[-1]])
        assert walked == cpus
    assert following[11:] == list(range(11, MAX_CPUS))


def test_without_smt_every_cpu_is_alone(tmp_path: Path) -> None:
    most, following = rings(topology(write_topology(tmp_path, [(0, [0]), (0, [1])])))
    assert most == 1
    assert following == list(range(MAX_CPUS))


def test_cores_and_packages_have_the_entry_of_their_lowest_cpu(tmp_path: Path) -> None:
    of_core, of_package = firsts(topology(write_topology(tmp_path, TWO_PACKAGES)))
    assert of_core[:8] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert of_package[:8] == [0, 0, 2, 2, 0, 0, 2, 2]
    alone = list(range(8, MAX_CPUS))
    assert of_core[8:] == of_package[8:] == alone, "what comes online later is alone"
