# SPDX-License-Identifier: Apache-2.0
"""The bench on real energy counters, on made-up files in the formats of its sources."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from studies.bench import bench_real
from studies.bench.real import rome, xeon
from studies.bench.real.pairs import pairs_of, platform_of
from studies.bench.real.scores import score
from studies.bench.real.traces import recording

REST_W, SHARED_W, GHZ = 30.0, 32.0, 2.5
OWN_W = {"calm": 20.0, "keen": 30.0}  #: on 8 cores
Row = dict[str, object]


def row(run: str, program: str, first: int, cores: int, seconds: float, /, **other: object) -> Row:
    """A program that keeps its cores busy for so long; `other` replaces columns."""
    cycles = GHZ * 1e9 * cores * seconds
    last = first + cores - 1
    columns: Row = {"run": run, "program": program, "threads": cores, "cores": f"{first}-{last}"}
    columns |= {"node": 1, "runtime_s": seconds, "window_s": seconds, "marked_error": 0}
    columns |= {"instructions": cycles, "cycles": cycles, "l3miss": cycles / 1000}
    columns |= {
        "wall_cycles": xeon.CLOCK_HZ * seconds,
        "dram0_j": 5 * seconds,
        "dram1_j": 8 * seconds,
    }
    columns |= {"package0_j": REST_W * seconds}
    if program in OWN_W:
        watts = REST_W + SHARED_W + OWN_W[program] * cores / 8
        columns["package1_j"] = watts * seconds
    return columns | other


def solo(program: str, cores: int, /, **other: object) -> Row:
    return row(f"solo-{program}-{cores}", program, 16, cores, 60.0, **other)


def pair(**other: object) -> list[Row]:
    """Both for 40 s, then `keen` alone for 20 s."""
    joint_j = 40 * (REST_W + SHARED_W + sum(OWN_W.values()))
    joint_j += 20 * (REST_W + SHARED_W + OWN_W["keen"])
    same = {"window_s": 60.0, "package0_j": REST_W * 60, "package1_j": joint_j} | other
    same |= {"dram0_j": 300.0, "dram1_j": 480.0}
    return [
        row("both", "calm", 16, 8, 40.0, **same),
        row("both", "keen", 24, 8, 60.0, **same),
    ]


SOLO = [solo(program, cores) for program in OWN_W for cores in (8, 16)]


def written(directory: Path, rows: Iterable[Row]) -> Path:
    with (directory / xeon.RUNS).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(SOLO[0]))
        writer.writeheader()
        writer.writerows(rows)
    return directory


def left_out(directory: Path, rows: Sequence[Row]) -> dict[str, str]:
    return dict(xeon.read(written(directory, rows)).left_out)


def test_the_reference_is_each_programs_own_power_and_its_part_of_what_is_shared(
    tmp_path: Path,
) -> None:
    runs = xeon.read(written(tmp_path, [*SOLO, *pair()]))
    assert not runs.left_out
    platform = platform_of(runs)
    assert (platform.rest_w, platform.shared_w) == pytest.approx((REST_W, SHARED_W))
    (both,) = pairs_of(runs)
    assert both.whole.seconds == 40.0
    assert both.joint_w == pytest.approx(REST_W + SHARED_W + 50.0)
    assert both.paid_once_w == pytest.approx(REST_W + SHARED_W)
    assert both.reference(platform) == pytest.approx([36 / 82, 46 / 82])
    assert both.whole.programs[1].counts == pytest.approx(2 / 3 * runs.pairs[0].programs[1].counts)


def test_counts_of_the_common_time_are_by_samples_where_there_are_any(tmp_path: Path) -> None:
    with gzip.open(tmp_path / xeon.SERIES, "wt") as file:
        file.write("run,program,i,cycles,instructions,l3miss\n")
        file.writelines(f"both,keen,{i},{3 if i < 4 else 1},1,1\n" for i in range(6))
    runs = xeon.read(written(tmp_path, [*SOLO, *pair()]))
    (both,) = pairs_of(runs)
    counted = both.whole.programs[1].counts / runs.pairs[0].programs[1].counts
    assert counted == pytest.approx([12 / 14, 4 / 6, 4 / 6])


def test_the_engine_comes_closer_than_cpu_time_on_such_a_machine(tmp_path: Path) -> None:
    runs = xeon.read(written(tmp_path, [*SOLO, *pair()]))
    solo = list(runs.solo.values())
    splits, predictions = score(list(pairs_of(runs)), platform_of(runs), solo)
    off = {method.method: method.points for method in splits}
    halves = {method.method: method.half_points or 0.0 for method in splits}
    assert halves[f"qjoule, the same and {len(solo) - 2} other runs"] < halves["qjoule, memory"]
    assert off["CPU time, above rest"] == pytest.approx(100 * abs(36 / 82 - 0.5))
    assert off["qjoule, memory, rest"] < off["CPU time, above rest"]
    exact = next(
        method for method in predictions if method.method == "R + S of 8 and 16 cores alone"
    )
    assert exact.error < 1e-9


def test_wraps_that_the_source_added_are_taken_off(tmp_path: Path) -> None:
    true_j = float(str(SOLO[0]["package1_j"]))
    added = solo("calm", 8, package1_j=true_j + 2 * xeon.WRAP_J)
    runs = xeon.read(written(tmp_path, [added, *SOLO[1:]]))
    assert runs.solo["calm", 8].package_w[1] == pytest.approx(true_j / 60)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"package1_j": 0.0}, "package 1: 0.0 W, its counter stood still"),
        ({"package0_j": 0.0}, "package 0: 0.0 W, its counter stood still"),
        ({"package1_j": -3.0}, "stood still or jumped"),
        ({"package1_j": "nan"}, "no number"),
        ({"package1_j": 60.0 * 300}, "package 1: 300 W, its counter jumped"),
        ({"package1_j": xeon.WRAP_J + 60.0}, "stood still or jumped"),
        ({"cycles": 1e9}, "its cycles stood still"),
        ({"cycles": 1e13}, "its cycles jumped"),
        ({"wall_cycles": 0}, "counted in 0.0 of 60.0 s"),
        ({"marked_error": 1}, "marked it as faulty"),
        ({"node": 0}, "not one or two programs on socket 1"),
        ({"window_s": 30.0, "package0_j": 900.0, "package1_j": 2_400.0}, "ran longer than"),
        ({"window_s": 0.0}, "no time"),
        ({"cores": "0-99999999999"}, "are not of socket 1"),
        (
            {"runtime_s": 900.0, "window_s": 900.0, "package1_j": 900 * 90.0},
            "too long to tell whether its source added a wrap",
        ),
    ],
)
def test_a_run_that_contradicts_itself_is_left_out_and_named(
    tmp_path: Path, other: Row, words: str
) -> None:
    why = left_out(tmp_path, [*SOLO[1:], solo("calm", 8, **other)])
    assert list(why) == ["solo-calm-8"]
    assert words in why["solo-calm-8"]


def test_a_pair_without_the_solo_run_of_a_program_is_left_out_and_named(tmp_path: Path) -> None:
    assert left_out(tmp_path, [*SOLO[1:], *pair()]) == {"both": "no usable solo run of calm"}


def test_a_pair_on_the_same_cores_is_left_out_and_named(tmp_path: Path) -> None:
    calm, keen = pair()
    why = left_out(tmp_path, [*SOLO, calm, keen | {"cores": "20-27"}])
    assert why == {"both": "two programs on one core"}


def test_a_counter_that_only_some_runs_have_is_not_used(tmp_path: Path) -> None:
    runs = xeon.read(written(tmp_path, [SOLO[0] | {"dram1_j": ""}, *SOLO[1:], *pair()]))
    (both,) = pairs_of(runs)
    recorded = recording([*both.solo, both.whole], platform_of(runs))
    assert [(series.domain, series.package) for series in recorded.series] == [
        ("package", 0),
        ("package", 1),
        ("dram", 0),
    ]
    assert not np.isfinite(both.solo[0].dram_w[1])


@pytest.mark.parametrize("bad", ["", "run,program\nx,y\n", "run,kind\n" + "x,solo\n"])
def test_a_table_of_another_format_is_refused(tmp_path: Path, bad: str) -> None:
    (tmp_path / xeon.RUNS).write_text(bad or "\0")
    if bad:
        with pytest.raises(xeon.NotTheSource):
            xeon.read(tmp_path)
    else:
        assert not xeon.read(tmp_path).solo


def test_a_table_that_ends_in_the_middle_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"run,program,i,cycles,instructions,l3miss\n" * 100)
    (tmp_path / xeon.SERIES).write_bytes(whole[:-9])
    with pytest.raises(xeon.NotTheSource):
        xeon.read(written(tmp_path, SOLO))


# ---- package power over threads ------------------------------------------------------------------


def phases(factor: dict[int, float], stuck: int = 0) -> list[str]:
    """Phases of kernels whose siblings draw `factor` of what a core draws, at two frequencies.

    Cores count a tenth of a kernel's watts, times its number.
    """
    lines, begin = [], 0
    for kernel, sibling in factor.items():
        for hz in (1_500_000_000, 2_500_000_000):
            series = [*range(4, 129, 4)] * 4 + [*range(16, 129, 16)]
            for number, threads in enumerate(series):
                begin += 1
                busy = min(threads, 64) + sibling * max(threads - 64, 0)
                placed = number < len(series) - 8
                watts = 110 + hz * 1e-9 * kernel * busy / 10 if placed else 555.0
                if number < stuck:
                    watts = 0.0
                cores = 0.1 * kernel * (watts - 110)
                row = (begin, begin + 1, 1, watts, cores, kernel, threads, hz, 2)
                lines.append("".join(f"{value}\t" for value in row))
    return lines


def rome_file(directory: Path, lines: Iterable[str]) -> Path:
    head = f"begin\tend\t'wall'\t{rome.PACKAGE_W}\t{rome.CORES_W}\texperiment\tthread_count"
    head += "\tfrequency\tcstate\t"
    with gzip.open(directory / rome.PHASES, "wt") as file:
        file.write("\n".join([head, *lines]) + "\n")
    return directory


def test_sibling_factors_and_parts_on_cores_are_found(tmp_path: Path) -> None:
    read = rome.read(rome_file(tmp_path, phases({4: 0.9, 8: 0.1})))
    assert read.left_out == (4 * 8, 0)
    top = read.take(read.ghz == 2.5)
    assert rome.sibling_factors(top) == pytest.approx({4: 0.9, 8: 0.1})
    assert rome.parts_on_cores(top) == pytest.approx({4: 0.4, 8: 0.8})
    one, by_kernel = (rome.errors(top, ways) for ways in _first_and_third(read))
    assert by_kernel.max() < 1e-6 < one.mean()


def _first_and_third(read: rome.Phases) -> tuple[rome.Columns, rome.Columns]:
    ways = list(rome._ways(np.unique(read.kernel)).values())
    return ways[0], ways[2]


def test_phases_whose_counter_stood_still_are_left_out_and_counted(tmp_path: Path) -> None:
    read = rome.read(rome_file(tmp_path, phases({4: 0.5}, stuck=5)))
    assert read.left_out == (2 * 8, 2 * 5)


def test_a_table_of_phases_without_its_columns_is_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / rome.PHASES, "wt") as file:
        file.write("begin\tend\n1\t2\n")
    with pytest.raises(rome.NotTheSource):
        rome.read(tmp_path)


# ---- the command ---------------------------------------------------------------------------------


def test_without_data_it_says_where_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ([], [""], [str(tmp_path)], [str(tmp_path / "none")]):
        assert bench_real.main(arguments) == 2
        assert "github.com/dcslab-snu/experiment-data" in capsys.readouterr().err


def test_data_in_the_tree_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_real.main([str(bench_real.ROOT / "studies")]) == 2
    assert "must not lie in this tree" in capsys.readouterr().err


def test_data_without_a_licence_is_used_and_said_to_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rome_file(tmp_path, phases({4: 0.5, 8: 0.1}))
    assert bench_real.main([str(tmp_path)]) == 0
    assert "has no README or LICENSE" in capsys.readouterr().out
    (tmp_path / "LICENSE").write_text("GPL-3.0")
    assert bench_real.main([str(tmp_path)]) == 0
    assert "has no README" not in capsys.readouterr().out
