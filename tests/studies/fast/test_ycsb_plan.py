# SPDX-License-Identifier: Apache-2.0
"""YCSB: the drawn values against theory; the contents of a plan; refused options."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from qjoule.errors import UsageError
from qjoule.studies.workload import Value
from qjoule.studies.ycsb import distributions
from qjoule.studies.ycsb.distributions import (
    SCRAMBLED_ITEMS,
    THETA,
    hashed,
    scrambled_zipfian,
    uniform,
    zeta,
    zipfian,
)
from qjoule.studies.ycsb.plan import COMMANDS, DEFAULTS, LONGEST_SCAN, MIXES, plan, settings
from qjoule.studies.ycsb.records import batches, keys

DRAWS = 200_000
SURELY = 1e-6  #: a correct generator fails a test at this level once in a million seeds


def options(**changed: Value) -> dict[str, Value]:
    return {**DEFAULTS, **changed}


def binomial_bounds(probability: float, draws: int = DRAWS) -> tuple[float, float]:
    low, high = stats.binom.ppf([SURELY / 2, 1 - SURELY / 2], draws, probability)
    return float(low), float(high)


def test_zeta_is_the_sum_and_ycsb_s_constant() -> None:
    assert zeta(3) == pytest.approx(1 + 2**-THETA + 3**-THETA, rel=1e-15)
    direct = float(np.sum(np.arange(1, 3_000_001, dtype=float) ** -THETA))
    assert zeta(3_000_000) == pytest.approx(direct, rel=1e-12)
    # ScrambledZipfianGenerator.ZETAN of YCSB
    assert zeta(SCRAMBLED_ITEMS) == pytest.approx(26.46902820178302, rel=1e-9)


@pytest.mark.parametrize("items", [2, 10, 1_000, SCRAMBLED_ITEMS])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_two_most_popular_ranks_have_zipf_s_frequencies(items: int, seed: int) -> None:
    ranks = zipfian(np.random.default_rng(seed), DRAWS, items)
    assert ranks.min() == 0
    assert ranks.max() < items
    for rank in (0, 1):
        low, high = binomial_bounds((rank + 1) ** -THETA / zeta(items))
        assert low <= np.count_nonzero(ranks == rank) <= high


@pytest.mark.parametrize("items", [100, 10_000])
def test_the_other_ranks_follow_gray_s_approximation_of_zipf(items: int) -> None:
    """Its distribution function is known. Zipf's is within 6 % of it from the tenth rank on."""
    ranks = zipfian(np.random.default_rng(3), DRAWS, items)
    eta = (1 - (2 / items) ** (1 - THETA)) / (1 - zeta(2) / zeta(items))
    for rank in (5, 10, 50, items // 2):
        below = ((rank / items) ** (1 - THETA) - 1 + eta) / eta
        low, high = binomial_bounds(below)
        assert low <= np.count_nonzero(ranks < rank) <= high
        if rank >= 10:
            assert below == pytest.approx(zeta(rank) / zeta(items), rel=0.06)


def test_scrambling_spreads_popular_records() -> None:
    drawn = scrambled_zipfian(np.random.default_rng(4), DRAWS, 1_000)
    counts = np.bincount(drawn, minlength=1_000)
    assert drawn.max() < 1_000
    popular = int(hashed(np.array([0]))[0]) % 1_000
    assert counts.argmax() == popular
    # The most popular key has rank 0's share, plus at most two thousandths of the other ranks'.
    share = 1 / zeta(SCRAMBLED_ITEMS)
    assert binomial_bounds(share)[0] <= counts[popular] <= binomial_bounds(share + 0.002)[1]
    assert np.count_nonzero(counts) == 1_000


def test_uniform_is_uniform() -> None:
    counts = np.bincount(uniform(np.random.default_rng(5), DRAWS, 100), minlength=100)
    assert len(counts) == 100
    assert stats.chisquare(counts).pvalue > SURELY


def fnv(number: int) -> int:
    """Hash64 of go-ycsb, from its source: FNV-1a of 8 bytes, big-endian, made positive."""
    value = 0xCBF29CE484222325
    for byte in number.to_bytes(8, "big"):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return abs(value - 2**64 if value >= 2**63 else value)


def test_hashes_are_those_of_go_ycsb() -> None:
    numbers = [0, 1, 2, 255, 256, 10**9, SCRAMBLED_ITEMS - 1]
    assert hashed(np.array(numbers)).tolist() == [fnv(number) for number in numbers]
    assert keys(7, 9) == [f"user{fnv(7)}", f"user{fnv(8)}"]


def test_keys_do_not_collide() -> None:
    assert len(set(keys(0, 100_000))) == 100_000


@pytest.mark.parametrize("name", MIXES)
def test_commands_have_their_shares(name: str) -> None:
    wanted = settings(options(workload=name, operations=50_000))
    counts = np.bincount(plan(wanted).commands, minlength=len(COMMANDS))
    assert sum(MIXES[name].shares.values()) == pytest.approx(1)
    for code, command in enumerate(COMMANDS):
        low, high = binomial_bounds(MIXES[name].shares.get(command, 0.0), 50_000)
        assert low <= counts[code] <= high


def test_the_core_workloads_are_those_of_the_paper() -> None:
    assert dict(MIXES["A"].shares) == {"read": 0.5, "update": 0.5}
    assert dict(MIXES["B"].shares) == {"read": 0.95, "update": 0.05}
    assert dict(MIXES["C"].shares) == {"read": 1.0}
    assert dict(MIXES["D"].shares) == {"read": 0.95, "insert": 0.05}
    assert dict(MIXES["E"].shares) == {"scan": 0.95, "insert": 0.05}
    assert dict(MIXES["F"].shares) == {"read": 0.5, "read-modify-write": 0.5}
    latest = [name for name, mix in MIXES.items() if mix.distribution == "latest"]
    assert latest == ["D"]


def test_a_plan_depends_on_its_seed_alone() -> None:
    wanted = settings(options(workload="E", operations=5_000))
    first, again = plan(wanted), plan(wanted)
    other = plan(settings(options(workload="E", operations=5_000, seed=2)))
    assert np.array_equal(first.records, again.records)
    assert np.array_equal(first.commands, again.commands)
    assert not np.array_equal(first.records, other.records)


def test_threads_share_a_plan_without_rest() -> None:
    whole = plan(settings(options(operations=1_003, threads=10)))
    parts = [whole.of_thread(thread, 10) for thread in range(10)]
    assert sum(len(part.commands) for part in parts) == 1_003
    assert {len(part.records) for part in parts} == {100, 101}
    together = np.sort(np.concatenate([part.records for part in parts]))
    assert np.array_equal(together, np.sort(whole.records))


def test_scans_are_of_one_to_a_hundred_records() -> None:
    lengths = plan(settings(options(workload="scan", operations=50_000))).lengths
    assert (lengths.min(), lengths.max()) == (1, LONGEST_SCAN)
    assert stats.chisquare(np.bincount(lengths)[1:]).pvalue > SURELY


def test_latest_means_near_the_newest() -> None:
    wanted = settings(options(workload="D", operations=50_000, record_count=1_000))
    distances = plan(wanted).records
    assert distances.max() < 1_000
    low, high = binomial_bounds(1 / zeta(1_000), 50_000)
    assert low <= np.count_nonzero(distances == 0) <= high
    assert np.median(distances) < 100


def test_records_come_from_their_seed() -> None:
    made = [record for batch in batches(2_500, 3, 7, 1) for record in batch]
    assert made == [record for batch in batches(2_500, 3, 7, 1) for record in batch]
    assert [key for key, _ in made] == keys(0, 2_500)
    assert {(len(values), len(value)) for _, values in made for value in values} == {(3, 7)}
    assert made[0][1] != made[1][1]
    other = next(batches(2_500, 3, 7, 2))
    assert other[0][1] != made[0][1]


def test_one_record_is_enough() -> None:
    wanted = settings(options(record_count=1, operations=100, workload="D"))
    assert set(plan(wanted).records) == {0}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workload", "G"),
        ("workload", "a"),
        ("workload", "\x1b[2J"),
        ("workload", 1),
        ("record_count", 0),
        ("record_count", -1),
        ("record_count", 1.5),
        ("record_count", float("nan")),
        ("record_count", float("inf")),
        ("record_count", True),
        ("record_count", "1000"),
        ("record_count", 10**12),
        ("operations", 0),
        ("operations", 10**18),
        ("record_bytes", 0),
        ("record_bytes", 1_001),
        ("fields", 0),
        ("fields", 101),
        ("fields", 3),
        ("threads", 0),
        ("threads", 100_000),
        ("distribution", "normal"),
        ("distribution", ""),
        ("seed", -1),
        ("seed", 2**32),
        ("client", "ycsb; rm -rf /"),
    ],
)
def test_options_that_make_no_sense_are_refused(name: str, value: Value) -> None:
    with pytest.raises(UsageError, match=r"has to be|choose|cannot be"):
        settings(options(**{name: value}))


def test_more_threads_than_operations_are_refused() -> None:
    with pytest.raises(UsageError, match="threads"):
        settings(options(threads=10, operations=9))


def test_unknown_and_missing_options_are_refused() -> None:
    with pytest.raises(UsageError, match="there is no option 'colour'"):
        settings(options(colour="red"))
    with pytest.raises(UsageError, match="option seed is missing"):
        settings({name: value for name, value in DEFAULTS.items() if name != "seed"})


def test_the_hash_has_no_sign() -> None:
    assert (distributions.hashed(np.arange(100_000)) >= 0).all()
