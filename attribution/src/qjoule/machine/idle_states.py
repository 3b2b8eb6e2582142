# SPDX-License-Identifier: Apache-2.0
"""The idle states that the kernel knows for the CPUs: /sys/devices/system/cpu/cpu*/cpuidle.

Linux describes the files in Documentation/admin-guide/pm/cpuidle.rst, "Representation of Idle
States". A virtual machine often has no such folder, or only states that the guest polls or halts
in; what the real core does then is the hypervisor's matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from qjoule.machine.facts import Check, read_text
from qjoule.shapes.safe_text import sanitise
from qjoule.trace.meta import MOST_COUNT, MOST_US, IdleState

ROOT = Path("/")
#: CPUIDLE_STATE_MAX is 10 (include/linux/cpuidle.h); a machine of two kinds of cores has 20.
MOST_STATES = 32
_NAME = 40  #: longest name kept; the kernel's are of 16 bytes
_CPU, _STATE = re.compile(r"cpu[0-9]{1,5}"), re.compile(r"state[0-9]{1,2}")


def read_idle_states(root: Path = ROOT) -> tuple[IdleState, ...]:
    """The distinct states of all CPUs, the shallowest first; empty where the kernel shows none.

    A file that cannot be read or understood leaves its value None; a state without a name or a
    latency is left out. Usage and time are sums over CPUs since they came online.
    """
    by_place: dict[tuple[str, int, int | None], IdleState] = {}
    for folder in _folders(root):
        state = _read(folder)
        if state is None:
            continue
        key = (state.name, state.latency_us, state.residency_us)
        if key in by_place:
            state = _merged(by_place[key], state)
        elif len(by_place) == MOST_STATES:
            continue
        by_place[key] = state
    return tuple(
        sorted(
            by_place.values(),
            key=lambda idle_state: (idle_state.latency_us, idle_state.residency_us or 0),
        )
    )


def check_idle_states(root: Path = ROOT) -> Check:
    """Doctor's line: the states, and how long it takes to leave each."""
    states = read_idle_states(root)
    if not states:
        detail = "the kernel shows none, as in many virtual machines"
        return Check("idle states", None, detail)
    driver = sanitise(read_text(root / "sys/devices/system/cpu/cpuidle/current_driver"))[:_NAME]
    listed = ", ".join(_description(state) for state in states)
    return Check("idle states", True, f"{listed} ({driver or 'driver unknown'})")


def _description(state: IdleState) -> str:
    off = ", disabled" if state.disabled else ""
    return f"{state.name} {state.latency_us} us{off}"


def _folders(root: Path) -> Iterator[Path]:
    base = root / "sys/devices/system/cpu"
    cpus = (path for path in _listed(base) if _CPU.fullmatch(path.name))
    for cpu in sorted(cpus, key=lambda path: int(path.name[3:])):
        yield from (path for path in _listed(cpu / "cpuidle") if _STATE.fullmatch(path.name))


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(folder: Path) -> IdleState | None:
    name = sanitise(read_text(folder / "name"))[:_NAME].strip()
    latency_us = _number(folder / "latency", MOST_US)
    if not name or latency_us is None:
        return None
    disabled = _number(folder / "disable", MOST_COUNT)
    return IdleState(
        name,
        latency_us,
        _number(folder / "residency", MOST_US),
        cpus=1,
        disabled=int(bool(disabled)),
        usage=_number(folder / "usage", MOST_COUNT),
        time_us=_number(folder / "time", MOST_COUNT),
    )


def _number(path: Path, most: int) -> int | None:
    """A whole number from 0 to `most`; None for anything else."""
    text = read_text(path)
    if not re.fullmatch(r"[0-9]{1,19}", text, re.ASCII):
        return None
    return value if (value := int(text)) <= most else None


def _merged(a: IdleState, b: IdleState) -> IdleState:
    return IdleState(
        a.name,
        a.latency_us,
        a.residency_us,
        cpus=a.cpus + b.cpus,
        disabled=a.disabled + b.disabled,
        usage=_added(a.usage, b.usage),
        time_us=_added(a.time_us, b.time_us),
    )


def _added(a: int | None, b: int | None) -> int | None:
    """The sum, within what a file may hold; None if either is unknown."""
    return None if a is None or b is None else min(a + b, MOST_COUNT)
