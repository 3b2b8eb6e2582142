# SPDX-License-Identifier: Apache-2.0
"""examples/host-feed: a VM's part of the host's energy, and what its receiver refuses."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parents[3] / "examples" / "host-feed"
KEY = b"k" * 32
RANGE_UJ = 262143328850


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def message(**other: int) -> Any:
    from feed_message import Message  # noqa: PLC0415 (found once the fixture has run)

    return replace(Message(session=5, sequence=1, interval_ms=100, energy_uj=1000), **other)


def test_a_message_survives_the_network() -> None:
    from feed_message import MAX_BYTES, decode, encode  # noqa: PLC0415

    largest = message(session=2**63 - 1, sequence=2**63 - 1, interval_ms=10_000)
    assert decode(encode(message(), KEY), KEY) == message()
    assert decode(encode(largest, KEY), KEY) == largest
    assert len(encode(largest, KEY)) < MAX_BYTES


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _: b"", "not a datagram"),
        (lambda data: data + b"\n", "not a datagram"),
        (lambda data: data[:-1], "not a datagram"),
        (lambda data: data.replace(b" 1000 ", b" -1000 "), "not a datagram"),
        (lambda data: data.replace(b" 1000 ", b" 1e3 "), "not a datagram"),
        (lambda _: b"\xff" * 200, "not a datagram"),
        (lambda data: data * 100, "not a datagram"),
        (lambda data: data.replace(b" 1000 ", b" 1001 "), "another key"),
        (lambda data: data[:-4] + b"0000", "another key"),
    ],
)
def test_garbage_and_forgeries_are_refused(change: Any, why: str) -> None:
    from feed_message import Refused, decode, encode  # noqa: PLC0415

    with pytest.raises(Refused, match=why):
        decode(change(encode(message(), KEY)), KEY)


@pytest.mark.parametrize(
    "other", [{"interval_ms": 9}, {"interval_ms": 10001}, {"energy_uj": 2**63}]
)
def test_numbers_out_of_range_are_refused(other: dict[str, int]) -> None:
    from feed_message import Refused, decode, encode  # noqa: PLC0415

    with pytest.raises(Refused, match="range"):
        decode(encode(message(**other), KEY), KEY)


@pytest.mark.parametrize(
    ("next_", "why"),
    [
        ({"sequence": 7}, "late, or sent twice"),
        ({"sequence": 6}, "late, or sent twice"),
        ({"session": 4, "sequence": 99}, "an earlier session"),
        ({"sequence": 8, "energy_uj": 999}, "goes back"),
        ({"sequence": 8, "energy_uj": 10**9}, "more than 100 W"),
        ({"sequence": 8, "interval_ms": 50}, "interval has changed"),
    ],
)
def test_wrong_data_are_refused_and_change_nothing(next_: dict[str, int], why: str) -> None:
    from feed_message import Refused  # noqa: PLC0415
    from receive import Feed  # noqa: PLC0415

    feed = Feed(most_w=100.0)
    assert feed.accept(message(sequence=7), 10.0) == 0
    with pytest.raises(Refused, match=why):
        feed.accept(message(**next_), 10.1)
    assert feed.accept(message(sequence=8, energy_uj=6000), 10.1) == 5000
    assert not feed.is_lost(11.0)
    assert feed.is_lost(11.2)


def test_a_lost_datagram_loses_no_energy_and_a_new_session_starts_at_0() -> None:
    from receive import Feed  # noqa: PLC0415

    feed = Feed(most_w=100.0)
    feed.accept(message(), 10.0)
    assert feed.accept(message(sequence=9, energy_uj=50_001_000), 10.8) == 50_000_000
    assert feed.accept(message(session=6, sequence=1, energy_uj=7), 10.9) == 0
    assert feed.accept(message(session=6, sequence=2, energy_uj=9), 11.0) == 2


def host(root: Path, energy_uj: int) -> None:
    """A powercap tree of a package with a part, a mirror and psys, which must not count."""
    for name, title in (
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:0:0", "core"),
        ("intel-rapl-mmio:0", "package-0"),
        ("intel-rapl:1", "psys"),
    ):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "name").write_text(f"{title}\n")
        (root / name / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        (root / name / "energy_uj").write_text(f"{energy_uj}\n")


def test_the_hosts_counter_wraps_and_nothing_counts_twice(tmp_path: Path) -> None:
    from export import Packages  # noqa: PLC0415

    host(tmp_path, RANGE_UJ - 10)
    packages = Packages(tmp_path)
    host(tmp_path, 20)
    assert packages.drawn_uj(0.1) == 31
    host(tmp_path, 50)
    assert packages.drawn_uj(0.1) == 30


def test_a_counter_that_goes_back_begins_a_new_session(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from export import Exporter, Packages, Part  # noqa: PLC0415

    times = iter(range(0, 10**9, 10_000))
    host(tmp_path, 5_000_000)
    exporter = Exporter(
        Packages(tmp_path), lambda: next(times), lambda: next(times), Part(0.0, 0.0), 100
    )
    host(tmp_path, 5_000_400)
    first = exporter.next()
    assert (first.sequence, first.energy_uj) == (1, 400)
    host(tmp_path, 3_000_000)
    second = exporter.next()
    assert second.session > first.session
    assert (second.sequence, second.energy_uj) == (1, 0)
    assert "went from 5000400 to 3000000" in capfd.readouterr().err


def test_parts_of_all_vms_add_up() -> None:
    from export import Part  # noqa: PLC0415

    shares = (100, 250, 650)
    parts = [Part(rest_w=10.0, rest_share=share / 1000) for share in shares]
    given = [0, 0, 0]
    for energy_uj in range(100_000, 200_000, 977):
        for i, (part, share) in enumerate(zip(parts, shares, strict=True)):
            given[i] += part.of(energy_uj, 0.005, share, 1000)
    total = sum(range(100_000, 200_000, 977))
    assert total - 3 <= sum(given) <= total
    assert [one / total for one in given] == pytest.approx([0.1, 0.25, 0.65], abs=1e-6)


@pytest.mark.parametrize("times", [(10, 0), (20, 10), (-5, 10), (0, -1)])
def test_impossible_shares_give_at_most_everything(times: tuple[int, int]) -> None:
    from export import Part  # noqa: PLC0415

    assert Part(0.0, 0.0).of(1000, 0.1, *times) in (0, 1000)


def test_cpu_times_of_cgroup_process_and_host(tmp_path: Path) -> None:
    from export import TICK_US, busy_us, cgroup_us, process_us  # noqa: PLC0415

    (tmp_path / "cpu.stat").write_text("usage_usec 123456\nuser_usec 100000\n")
    (tmp_path / "stat").write_text("cpu  10 1 5 900 7 2 3 40 6 0\ncpu0 1 1\n")
    (tmp_path / "77").mkdir()
    (tmp_path / "77/stat").write_text("77 (qemu (x) 1) S 1" + " 0" * 9 + " 30 12 0 0\n")
    assert cgroup_us(tmp_path) == 123456
    assert busy_us(tmp_path) == 21 * TICK_US
    assert process_us(77, tmp_path) == 42 * TICK_US
    (tmp_path / "cpu.stat").write_text("user_usec 100000\n")
    with pytest.raises(ValueError, match="usage_usec"):
        cgroup_us(tmp_path)


@pytest.mark.parametrize(("size", "mode"), [(31, 0o600), (4097, 0o600), (32, 0o640)])
def test_weak_keys_are_refused(tmp_path: Path, size: int, mode: int) -> None:
    from feed_message import read_key  # noqa: PLC0415

    (tmp_path / "key").write_bytes(b"x" * size)
    (tmp_path / "key").chmod(mode)
    with pytest.raises(ValueError, match="key"):
        read_key(tmp_path / "key")


@contextmanager
def receiver(tmp_path: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A running receiver and its counter."""
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    options = [
        *("--listen", f"127.0.0.1:{port}", "--from", "127.0.0.1", "--most-w", "100"),
        *("--key", str(tmp_path / "key"), "--root", str(tmp_path / "tree")),
    ]
    with subprocess.Popen(
        [sys.executable, str(HERE / "receive.py"), *options], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, tmp_path / "tree/intel-rapl:0/energy_uj"
        finally:
            process.terminate()


def until(counter: Path, value: str) -> None:
    deadline = time.monotonic() + 10
    while not counter.exists() or counter.read_text() != value:
        assert time.monotonic() < deadline, counter.exists() and counter.read_text()
        time.sleep(0.01)


def test_the_counter_follows_the_feed_and_is_empty_without_it(tmp_path: Path) -> None:
    from feed_message import encode  # noqa: PLC0415

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (
        receiver(tmp_path, port) as (process, counter),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        until(counter, "")

        def send(data: bytes) -> None:
            sender.sendto(data, ("127.0.0.1", port))

        send(b"garbage")
        send(encode(message(), b"another key" * 3))
        send(encode(message(), KEY))
        until(counter, f"{0:020d}\n")
        assert counter.with_name("period_ms").read_text() == "100\n"
        held = counter.open("rb", buffering=0)  # as the tracer holds it
        send(encode(message(sequence=2, energy_uj=3000), KEY))
        until(counter, f"{2000:020d}\n")
        send(encode(message(sequence=2, energy_uj=4000), KEY))
        send(encode(message(sequence=3, energy_uj=9 * 10**12), KEY))
        until(counter, "")  # lost: nothing valid came for a second
        assert held.read() == b""
        send(encode(message(sequence=4, energy_uj=5000), KEY))
        until(counter, f"{4000:020d}\n")
        held.seek(0)
        assert held.read() == f"{4000:020d}\n".encode()
        held.close()
    assert process.stderr is not None
    assert counter.read_text() == ""  # also once it has ended
