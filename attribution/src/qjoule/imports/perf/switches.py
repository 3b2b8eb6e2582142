"""The payload of `sched:sched_switch`."""

from __future__ import annotations

import re

#: As the kernel's own format has it, and as libtraceevent's plugin for sched_switch prints it.
#: Names of threads may hold any bytes, but only 15: too few for what follows them here.
_KERNELS = re.compile(
    rb"prev_comm=.{0,16}? prev_pid=(\d{1,7}) prev_prio=-?\d{1,9} prev_state=\S{1,16} ==> "
    rb"next_comm=.{0,16} next_pid=(\d{1,7}) next_prio=-?\d{1,9}\s*\Z",
    re.DOTALL,
)
_PLUGINS = re.compile(
    rb".{0,16}?:(\d{1,7}) \[-?\d{1,9}\] \S{1,16} ==> .{0,16}:(\d{1,7}) \[-?\d{1,9}\](?: .*)?\Z",
    re.DOTALL,
)


def switch_of(payload: bytes) -> tuple[int, int] | None:
    """Numbers of the thread that was switched out, and of the one that came; None: it is none."""
    match = _KERNELS.match(payload) or _PLUGINS.match(payload)
    return (int(match[1]), int(match[2])) if match else None
