# SPDX-License-Identifier: Apache-2.0
"""The calibration's file: what it refuses, and whether it fits a machine or a trace."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrations import MACHINE, calibration, trace_meta, written
from qjoule.errors import QjouleError
from qjoule.machine.calibration import MAX_BYTES, Match, load, machine_file, match, parse
from qjoule.machine.identity import Frequency, Identity, Package, of_trace
from qjoule.shapes.safe_text import sanitise
from qjoule.trace.meta import DomainInfo, EnergyInfo

WHOLE = calibration().to_json()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def test_the_file_holds_all_of_it(tmp_path: Path) -> None:
    stored = calibration()
    assert load(written(tmp_path / "c.json", stored)) == stored
    document = json.loads(stored.to_json())
    assert document["schema"] == "qjoule.calibration/1"
    document["colour"] = document["identity"]["rack"] = "unknown keys are ignored"
    assert parse(json.dumps(document).encode()) == stored
    assert load(tmp_path / "absent.json") is None


# ---- damage --------------------------------------------------------------------------------------


def spoil(change: Callable[[dict[str, Any]], object]) -> bytes:
    document: dict[str, Any] = json.loads(WHOLE)
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"schema": "qjoule.calibration/2"}',
        spoil(lambda d: d.pop("coefficients")),
        spoil(lambda d: d.update(date="0001-01-01T00:00:00+14:00")),
        spoil(lambda d: d["coefficients"].update(a=-1.0)),
        spoil(lambda d: d["coefficients"].update(shared_w=[{"package": 9}])),
        spoil(lambda d: d["held_out_error"].update(package=10**400)),
        spoil(lambda d: d["identified"]["v"].update(low=9.0)),
        WHOLE.replace("0.9", "1e999").encode(),
    ],
)
def test_damage_is_told_in_one_line(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "c.json").write_bytes(text)
    with pytest.raises(QjouleError, match="is no calibration") as refused:
        load(tmp_path / "c.json")
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)


def test_a_file_without_end_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(QjouleError, match="larger"):
        load(tmp_path / "c.json")


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in a document."""
    if not isinstance(value, dict | list):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [path] * bool(path) + [at for key, item in items for at in paths(item, (*path, key))]


def is_safe(text: str) -> bool:
    """Not `isprintable`: a character may be newer than this Python's Unicode."""
    return sanitise(text) == text


def assert_refused_or_usable(text: bytes) -> None:
    try:
        parsed = parse(text)
    except ValueError as error:
        assert is_safe(str(error))
        assert len(str(error)) <= 200
        return
    assert parse(parsed.to_json().encode()) == parsed
    fit = match(parsed, of_trace(trace_meta()), trace_meta())
    assert all(map(is_safe, (parsed.origin, *fit.refused, *fit.flagged)))
    numbers = [parsed.coefficients.a, parsed.coefficients.b, *parsed.held_out_error.values()]
    assert all(math.isfinite(number) and number >= 0 for number in numbers)


@given(st.sampled_from(paths(json.loads(WHOLE))), JSON)
def test_a_value_of_another_kind(path: tuple[Any, ...], value: Any) -> None:
    document = at = json.loads(WHOLE)
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    assert_refused_or_usable(json.dumps(document).encode())


def test_text_of_a_hostile_file_is_one_harmless_line() -> None:
    hostile = calibration(replace(MACHINE, host="\x1b[2J\nroot# " + "x" * 5000))
    (flag,) = match(hostile, replace(MACHINE, machine="a" * 32)).flagged
    assert is_safe(hostile.origin) and is_safe(flag)
    assert len(flag) <= 200


# ---- whether it fits -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "refused", "flagged"),
    [
        (MACHINE, "", ""),
        (Identity(), "", ""),  # what is not known is no difference
        (replace(MACHINE, host="db1.example.org"), "", ""),  # the same machine id
        (replace(MACHINE, cpu="Example CPU 7000"), "another CPU", ""),
        (replace(MACHINE, packages=(Package(0, 4, 8),)), "another topology", ""),
        (replace(MACHINE, machine="f" * 32, host="db2"), "", "another host (db1)"),
        (replace(MACHINE, governor="powersave"), "", "governor performance, not powersave"),
        (replace(MACHINE, frequency=Frequency(10**6, 2_500_000, "off")), "", "1.00 to 2.50 GHz"),
        (replace(MACHINE, microcode="0x1"), "", "microcode"),
        (replace(MACHINE, kernel="7.2.0"), "", "kernel 6, not 7"),
    ],
)
def test_another_machine_is_refused_and_a_changed_one_is_flagged(
    theirs: Identity, refused: str, flagged: str
) -> None:
    fit = match(calibration(), theirs)
    for phrases, expected in ((fit.refused, refused), (fit.flagged, flagged)):
        assert len(phrases) == bool(expected)
        assert expected in "".join(phrases)


def test_age() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    old = calibration(date=(now - timedelta(days=181)).isoformat())
    assert match(old, MACHINE, None, now).flagged == ("is 181 days old",)
    assert not match(old, MACHINE, None, now - timedelta(days=1)).flagged


def test_another_energy() -> None:
    own, meta = calibration(), trace_meta()

    def fits(**changes: object) -> Match:
        return match(own, of_trace(meta), trace_meta(**changes))

    assert fits() == fits(domains=meta.domains[:1]) == Match()
    more = (*meta.domains, DomainInfo(1, "dram", 1e-6))
    assert fits(domains=more).refused == ("it knows nothing of dram of package 1",)
    assert "measured energy" in fits(energy=EnergyInfo("estimated", "estimated")).refused[0]
    perf = fits(energy=EnergyInfo("perf", "measured"))
    assert perf.flagged == ("was made by powercap, not perf",)
    assert "counters" in fits(counters=()).flagged[0]


# ---- this machine --------------------------------------------------------------------------------


def test_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "qjoule").mkdir()
    own = written(tmp_path / "qjoule" / "calibration.json")
    machines = Path("/var/lib/qjoule/calibration.json")
    cases = ((1000, tmp_path, own), (1000, tmp_path / "a", machines), (0, tmp_path, machines))
    for user, home, expected in cases:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert machine_file() == expected
