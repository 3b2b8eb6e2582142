# SPDX-License-Identifier: Apache-2.0
"""The meta.json of a trace at the start of its recording."""

from __future__ import annotations

import platform

from qjoule.machine.cpu import read_cpu_info
from qjoule.machine.idle_states import read_idle_states
from qjoule.servers.plan import AttachPlan
from qjoule.trace.meta import Meta, Server


def trace_meta(plan: AttachPlan) -> Meta:
    """For this machine and the servers of the plan."""
    servers = tuple(
        Server(
            id=planned.server.id,
            name=planned.server.label,
            kind=str(planned.server.flavour),
            version=planned.server.version,
            exe=planned.server.program,
            rung=planned.choice.rung.name.lower(),
            reason=planned.choice.why,
        )
        for planned in plan.traced
    )
    return Meta(
        host=platform.node(),
        kernel=platform.release(),
        cpu=read_cpu_info().name,
        servers=servers,
        idle_states=read_idle_states(),
    )
