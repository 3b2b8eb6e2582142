# SPDX-License-Identifier: Apache-2.0
"""The payload of `sched:sched_switch`."""

from __future__ import annotations

import re

#: As the kernel's own format has it. Names of threads may hold any bytes, but only 15: too few for
#: what follows them here.
_KERNELS = re.compile(
    rb"prev_comm=.{0,16}? prev_pid=(\d{1,7}) prev_prio=-?\d{1,9} prev_state=\S{1,16} ==> "
    rb"next_comm=.{0,16} next_pid=(\d{1,7}) next_prio=-?\d{1,9}\s*\Z",
    re.DOTALL,
)
#: As libtraceevent's plugin for sched_switch prints it. A name could look like this.
_PLUGINS_BEFORE = re.compile(rb":(\d{1,7}) \[-?\d{1,9}\] \S{1,16} ==> ")
_PLUGINS_AFTER = re.compile(rb".{0,16}:(\d{1,7}) \[-?\d{1,9}\]\s*\Z", re.DOTALL)


def switch_of(payload: bytes, tid: int) -> tuple[int, int] | None:
    """Numbers of the thread that was switched out, and of the one that came; None: it is none.

    `tid`: whose record it is, which was switched out; -1: it had ended.
    """
    match = _KERNELS.match(payload)
    if match:
        return int(match[1]), int(match[2])
    for before in _PLUGINS_BEFORE.finditer(payload):
        after = _PLUGINS_AFTER.match(payload, before.end())
        if after and tid in (-1, int(before[1])):
            return int(before[1]), int(after[1])
    return None
