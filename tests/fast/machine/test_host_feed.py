# SPDX-License-Identifier: Apache-2.0
"""examples/host-feed: a VM's part of the host's energy, and what its receiver refuses."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from energy_probe.probe import write, zone
from waiting import until

HERE = Path(__file__).parents[3] / "examples" / "host-feed"
KEY = b"k" * 32
RANGE_UJ = 262143328850

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(HERE))
    feed_message, receive, export = map(import_module, ("feed_message", "receive", "export"))
encode, decode, Refused = feed_message.encode, feed_message.decode, feed_message.Refused


def message(**other: int) -> Any:
    first = feed_message.Message(session=5, sequence=1, interval_ms=100, energy_uj=1000)
    return replace(first, **other)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _: b"", "not a datagram"),
        (lambda data: data[:-1], "not a datagram"),
        (lambda data: data.replace(b" 1000 ", b" -1000 "), "not a datagram"),
        (lambda _: b"\xff" * 200, "not a datagram"),
        (lambda data: data * 100, "not a datagram"),
        (lambda data: data.replace(b" 1000 ", b" 1001 "), "another key"),
        (lambda _: encode(message(interval_ms=10_001), KEY), "range"),
        (lambda _: encode(message(energy_uj=2**63), KEY), "range"),
    ],
)
def test_garbage_and_forgeries_are_refused(change: Callable[[bytes], bytes], why: str) -> None:
    with pytest.raises(Refused, match=why):
        decode(change(encode(message(), KEY)), KEY)


@pytest.mark.parametrize(
    ("next_", "why"),
    [
        ({"sequence": 7}, "late, or sent twice"),
        ({"session": 4, "sequence": 99}, "an earlier session"),
        ({"sequence": 8, "energy_uj": 999}, "goes back"),
        ({"sequence": 8, "energy_uj": 10**9}, "more than 100 W"),
        ({"sequence": 8, "interval_ms": 50}, "interval has changed"),
    ],
)
def test_wrong_data_are_refused_and_change_nothing(next_: dict[str, int], why: str) -> None:
    feed = receive.Feed(most_w=100.0)
    assert feed.accept(message(sequence=7), 10.0) == 0
    with pytest.raises(Refused, match=why):
        feed.accept(message(**next_), 10.1)
    assert feed.accept(message(sequence=8, energy_uj=6000), 10.1) == 5000
    assert not feed.is_lost(11.0)
    assert feed.is_lost(11.2)
    assert feed.accept(message(sequence=17, energy_uj=9000), 11.3) == 8000, "none is lost"
    assert feed.accept(message(session=6, energy_uj=7), 11.4) == 0, "a session starts at 0"


def host(root: Path, energy_uj: int) -> Path:
    """A powercap tree of a package with a part, a mirror and psys, which must not count."""
    zone(root, "intel-rapl:0", "package-0", energy_uj, RANGE_UJ)
    zone(root, "intel-rapl:0:0", "core", energy_uj, RANGE_UJ)
    zone(root, "intel-rapl-mmio:0", "package-0", energy_uj, RANGE_UJ)
    zone(root, "intel-rapl:1", "psys", energy_uj, RANGE_UJ)
    return root


def test_the_hosts_counter_wraps_and_one_that_goes_back_begins_a_new_session(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    packages = export.Packages(host(tmp_path, RANGE_UJ - 10))
    host(tmp_path, 20)
    assert packages.drawn_uj(0.1) == 31
    times, part = iter(range(0, 10**9, 10_000)), export.Part(0.0, 0.0)
    exporter = export.Exporter(packages, lambda: next(times), lambda: next(times), part, 100)
    host(tmp_path, 420)
    first = exporter.next()
    host(tmp_path, 300)
    second = exporter.next()
    assert [(sent.sequence, sent.energy_uj) for sent in (first, second)] == [(1, 400), (1, 0)]
    assert second.session > first.session
    assert "went from 420 to 300" in capfd.readouterr().err


def test_parts_of_all_vms_add_up() -> None:
    shares = (100, 250, 650)
    parts = [export.Part(rest_w=10.0, rest_share=share / 1000) for share in shares]
    given_uj = [0, 0, 0]
    for energy_uj in range(100_000, 200_000, 977):
        for i, (part, share) in enumerate(zip(parts, shares, strict=True)):
            given_uj[i] += part.of(energy_uj, 0.005, share, 1000)
    total = sum(range(100_000, 200_000, 977))
    assert total - 3 <= sum(given_uj) <= total
    assert [energy / total for energy in given_uj] == pytest.approx([0.1, 0.25, 0.65], abs=1e-6)
    for impossible in ((10, 0), (20, 10), (-5, 10), (0, -1)):
        assert export.Part(0.0, 0.0).of(1000, 0.1, *impossible) in (0, 1000)


def test_a_key_must_be_long_and_secret(tmp_path: Path) -> None:
    for size, mode in ((31, 0o600), (4097, 0o600), (32, 0o640)):
        write(tmp_path / "key", "x" * size).chmod(mode)
        with pytest.raises(ValueError, match="key"):
            feed_message.read_key(tmp_path / "key")


def until_reads(counter: Path, value: str) -> None:
    until(lambda: counter.exists() and counter.read_text() == value, value)


def program(name: str, key: Path, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(HERE / name), "--key", str(key), *options])


def test_the_counter_follows_the_feed_and_is_empty_without_it(tmp_path: Path) -> None:
    key, counter = tmp_path / "key", tmp_path / "tree/intel-rapl:0/energy_uj"
    key.write_bytes(KEY)
    key.chmod(0o600)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    allowed = ("--listen", address, "--from", "127.0.0.1", "--most-w", "100")
    with (
        program("receive.py", key, *allowed, "--root", str(tmp_path / "tree")) as process,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sender.connect(("127.0.0.1", port))
        try:
            until_reads(counter, "")
            sender.send(b"garbage")
            sender.send(encode(message(), b"another key" * 3))
            sender.send(encode(message(), KEY))
            until_reads(counter, f"{0:020d}\n")
            assert counter.with_name("period_ms").read_text() == "100\n"
            with counter.open("rb", buffering=0) as held:  # as the tracer holds it
                sender.send(encode(message(sequence=2, energy_uj=3000), KEY))
                until_reads(counter, f"{2000:020d}\n")
                sender.send(encode(message(sequence=2, energy_uj=4000), KEY))
                sender.send(encode(message(sequence=3, energy_uj=9 * 10**12), KEY))
                until_reads(counter, "")  # lost: nothing valid came for a second
                assert held.read() == b""
                sender.send(encode(message(sequence=4, energy_uj=5000), KEY))
                until_reads(counter, f"{4000:020d}\n")
                held.seek(0)
                assert held.read() == f"{4000:020d}\n".encode()
            root = host(tmp_path / "powercap", 0)
            write(tmp_path / "stat", "cpu  0 0 0 0 0 0 0 0 0 0\n")
            write(tmp_path / "cpu.stat", "usage_usec 0\n")
            of_vm = ("--powercap", str(root), "--proc", str(tmp_path), "--cgroup", str(tmp_path))
            shares = ("--rest-w", "90", "--rest-share", "0.5")
            until_reads(counter, "")
            with program("export.py", key, "--to", address, *of_vm, *shares) as exporter:
                until_reads(counter, f"{0:020d}\n")
                host(root, 20_000)
                until_reads(counter, f"{10_000:020d}\n")
                exporter.terminate()
        finally:
            process.terminate()
    assert counter.read_text() == ""  # also once it has ended
