# SPDX-License-Identifier: Apache-2.0
"""Hardware and software events by the names that perf gives them; finds those of this machine.

The names and numbers are those of perf_event_open(2): PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE,
PERF_TYPE_HW_CACHE (id | operation << 8 | result << 16) and raw `rNNN` (PERF_TYPE_RAW, hexadecimal).
The same call shows which hardware counters exist, and whether a container's seccomp filter allows
it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from qjoule.contract import COUNTER_NAMES, MORE_COUNTERS
from qjoule.errors import UsageError
from qjoule.machine.facts import Check, read_text

#: perf_event_open(2); PERF_TYPE_HARDWARE and the configs of include/uapi/linux/perf_event.h
SYSCALLS = {"x86_64": 298, "aarch64": 241}
TYPE_HARDWARE = 0
CONFIGS = {"cycles": 0, "instructions": 1, "llc_misses": 3}
FLAG_FD_CLOEXEC = 8
HARDWARE, SOFTWARE, HW_CACHE, RAW = 0, 1, 3, 4
#: Modifiers as in perf, and their values in requests to the root part: protocol.h.
USER, KERNEL = 4, 8
MODIFIERS = {"u": USER, "k": KERNEL}

_HARDWARE = {
    "cycles": 0,
    "instructions": 1,
    "cache-references": 2,
    "cache-misses": 3,
    "branches": 4,
    "branch-misses": 5,
    "bus-cycles": 6,
    "stalled-cycles-frontend": 7,
    "stalled-cycles-backend": 8,
    "ref-cycles": 9,
}
_SOFTWARE = {
    "cpu-clock": 0,
    "task-clock": 1,
    "page-faults": 2,
    "context-switches": 3,
    "cpu-migrations": 4,
    "minor-faults": 5,
    "major-faults": 6,
}
_SYNONYMS = {
    "cpu-cycles": "cycles",
    "branch-instructions": "branches",
    "idle-cycles-frontend": "stalled-cycles-frontend",
    "idle-cycles-backend": "stalled-cycles-backend",
    "faults": "page-faults",
    "cs": "context-switches",
    "migrations": "cpu-migrations",
}
_CACHES = {
    "L1-dcache": 0,
    "L1-icache": 1,
    "LLC": 2,
    "dTLB": 3,
    "iTLB": 4,
    "branch": 5,
    "node": 6,
}
_OPERATIONS = {"load": 0, "store": 1, "prefetch": 2}
#: Caches that can only be read, as in the kernel's tables.
_READ_ONLY = ("L1-icache", "iTLB", "branch")
_RAW_NAME = re.compile(r"r([0-9a-fA-F]{1,16})")
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")


class _PerfEventAttr(ctypes.Structure):
    """PERF_ATTR_SIZE_VER0: every kernel takes it."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("bp_addr", ctypes.c_uint64),
    )


def try_event(event_type: int, config: int) -> int:
    """Opens and closes a system-wide event on CPU 0. Returns 0, or the errno of the refusal."""
    number = SYSCALLS.get(platform.machine())
    if number is None:
        return errno.ENOSYS
    attr = _PerfEventAttr(type=event_type, size=ctypes.sizeof(_PerfEventAttr), config=config)
    libc = ctypes.CDLL(None, use_errno=True)
    any_pid, cpu, no_group = ctypes.c_int(-1), ctypes.c_int(0), ctypes.c_int(-1)
    descriptor = libc.syscall(
        ctypes.c_long(number),
        ctypes.byref(attr),
        any_pid,
        cpu,
        no_group,
        ctypes.c_ulong(FLAG_FD_CLOEXEC),
    )
    if descriptor < 0:
        return ctypes.get_errno()
    os.close(descriptor)
    return 0


def hardware_counters(probe: Callable[[int, int], int] = try_event) -> tuple[Check, ...]:
    """One check per counter of the event contract; `probe` returns 0 or an errno."""
    return tuple(_check(name, probe(TYPE_HARDWARE, CONFIGS[name])) for name in COUNTER_NAMES)


def why_missing(error: int) -> str:
    """Says why an event could not be opened."""
    absent = error in (errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL)
    return "absent" if absent else os.strerror(error)


def _check(name: str, error: int) -> Check:
    if not error:
        return Check(f"counter {name}", True, "available")
    if error in (errno.EACCES, errno.EPERM):
        return Check(f"counter {name}", None, "not permitted", "run it with sudo")
    detail = f"{why_missing(error)}; energy is apportioned by CPU time"
    fix = "in a virtual machine, have the hypervisor expose a PMU; else nothing can be done"
    return Check(f"counter {name}", False, detail, fix)


ROOT = Path("/")
_NAME = "seccomp"
#: perf_event_open(2) rejects unknown flags before it checks rights (events/core.c).
_NO_FLAGS = ctypes.c_ulong(~0)
_FIX = (
    "a runtime's default filter may want CAP_SYS_ADMIN for bpf and perf_event_open; use "
    "packaging/oci/seccomp.json instead (podman run --security-opt seccomp=FILE)"
)


def ask_kernel() -> int:
    """Calls perf_event_open(2) with invalid flags and returns its errno: EINVAL from the kernel,
    whatever the rights; another value from a filter."""
    number = SYSCALLS.get(platform.machine())
    if number is None:
        return errno.EINVAL
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(ctypes.c_long(number), None, 0, 0, 0, _NO_FLAGS)
    return ctypes.get_errno()


def syscall_filter(root: Path = ROOT, ask: Callable[[], int] = ask_kernel) -> tuple[Check, ...]:
    """One check if this process, and so all of its container, has a filter; else none."""
    status = read_text(root / "proc/self/status")
    if not re.search(r"^Seccomp:\s*2$", status, re.MULTILINE):
        return ()
    if ask() == errno.EINVAL:
        return (Check(_NAME, True, "the container's filter allows perf_event_open"),)
    return (Check(_NAME, False, "the container's filter refuses perf_event_open", _FIX),)


def _cache_events() -> dict[str, int]:
    events = {}
    for cache, number in _CACHES.items():
        for operation, code in _OPERATIONS.items():
            if operation == "store" and cache in _READ_ONLY:
                continue
            plural = "es" if operation == "prefetch" else "s"
            events[f"{cache}-{operation}{plural}"] = number | code << 8
            events[f"{cache}-{operation}-misses"] = number | code << 8 | 1 << 16
    return events


_EVENTS = {
    **{name: (HARDWARE, config) for name, config in _HARDWARE.items()},
    **{name: (HW_CACHE, config) for name, config in _cache_events().items()},
    **{name: (SOFTWARE, config) for name, config in _SOFTWARE.items()},
}
NAMES = tuple(_EVENTS)


@dataclass(frozen=True)
class PerfEvent:
    """`name` as in the trace, with its modifier; `flags`: `USER`, `KERNEL` or 0."""

    name: str
    type: int
    config: int
    flags: int = 0

    @property
    def option(self) -> str:
        """The value for the tracer's option `--counter`."""
        modifier = {USER: ":u", KERNEL: ":k"}.get(self.flags, "")
        return f"more={self.type}:{self.config}{modifier}"


#: Events of every recording, in their own slots; named as in perf.
ALWAYS = ("cycles", "instructions", "cache-misses")


def parse_event(text: str) -> PerfEvent:
    """One event: `branch-misses`, `instructions:u`, `r01c2`, or `L2-misses=r3f24` with a given
    name.

    Raises:
        UsageError: there is no such event; the error lists similar names.
    """
    alias, equals, rest = text.partition("=")
    name, colon, modifier = (rest if equals else text).partition(":")
    if colon and modifier not in MODIFIERS:
        raise UsageError(f"--counters {text}: the modifier is u (user space) or k (kernel)")
    name = _SYNONYMS.get(name, name)
    raw = _RAW_NAME.fullmatch(name)
    if raw:
        kind, config = RAW, int(raw[1], 16)
    elif name in _EVENTS:
        kind, config = _EVENTS[name]
    else:
        raise UsageError(f"--counters: no event '{name}'; {_suggestion(name)}")
    if equals and not _ALIAS.fullmatch(alias):
        raise UsageError(f"--counters {text}: give it a name of letters, digits, '-', '_' and '.'")
    if alias in ALWAYS and equals:
        raise UsageError(f"--counters {text}: {alias} is always counted; give it another name")
    label = alias if equals else name + colon + modifier
    return PerfEvent(label, kind, config, MODIFIERS.get(modifier, 0))


def _suggestion(name: str) -> str:
    import difflib  # noqa: PLC0415 (a quarter of a MB, for an error)

    by_lower_case = {spelling.lower(): spelling for spelling in (*NAMES, *_SYNONYMS)}
    matches = [
        by_lower_case[spelling]
        for spelling in difflib.get_close_matches(name.lower(), by_lower_case, 4, 0.5)
    ]
    if matches:
        return f"did you mean {', '.join(matches)}?"
    return "give names such as branch-misses, L1-dcache-load-misses or raw ones such as r01c2"


def parse_events(text: str) -> tuple[PerfEvent, ...]:
    """Events from a comma-separated list, each once, without those of every recording.

    Raises:
        UsageError: an event is not known, there is none, or there are too many.
    """
    names = [word.strip() for word in text.split(",")]
    if not all(names):
        raise UsageError("--counters: give events with commas between them, such as branch-misses")
    events = {event.name: event for event in map(parse_event, names)}
    chosen = tuple(event for name, event in events.items() if name not in ALWAYS)
    if len(chosen) > MORE_COUNTERS:
        raise UsageError(f"--counters: {len(chosen)} events, at most {MORE_COUNTERS} can be read")
    return chosen


@dataclass(frozen=True)
class FurtherCounters:
    """Further counters: those the machine has, and, by reason, those it does not have."""

    events: tuple[PerfEvent, ...] = ()
    absent: dict[str, list[str]] = field(default_factory=dict)

    def missing(self) -> Iterator[str]:
        """Lines that name the events that are not counted."""
        for why, names in self.absent.items():
            yield f"not counted: {', '.join(names)} ({why})"


def more_counters(
    events: Iterable[PerfEvent], probe: Callable[[int, int, int], int]
) -> FurtherCounters:
    """Which of the events can be counted; `probe(type, config, flags)` returns 0 or an errno."""
    available: list[PerfEvent] = []
    absent: dict[str, list[str]] = {}
    for event in events:
        error = probe(event.type, event.config, event.flags)
        if error:
            absent.setdefault(why_missing(error), []).append(event.name)
        else:
            available.append(event)
    return FurtherCounters(tuple(available), absent)
