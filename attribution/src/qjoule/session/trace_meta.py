# SPDX-License-Identifier: Apache-2.0
"""The meta.json of a trace at the start of its recording."""

from __future__ import annotations

import platform

from qjoule.machine.facts import read_cpu_info
from qjoule.machine.idle_states import read_idle_states
from qjoule.servers.plan import AttachPlan, PlannedServer
from qjoule.trace.meta import Meta, Server


def trace_meta(plan: AttachPlan) -> Meta:
    """For this machine and the servers of the plan."""
    return Meta(
        host=platform.node(),
        kernel=platform.release(),
        cpu=read_cpu_info().name,
        servers=tuple(server_of(planned) for planned in plan.traced),
        idle_states=read_idle_states(),
    )


def server_of(planned: PlannedServer) -> Server:
    """A server as a trace lists it."""
    return Server(
        id=planned.server.id,
        name=planned.server.label,
        kind=str(planned.server.flavour),
        version=planned.server.version,
        exe=planned.server.program,
        attach_mode=planned.choice.attach_mode.name.lower(),
        reason=planned.choice.why,
        no_symbol=planned.choice.no_symbol,
    )
