# SPDX-License-Identifier: Apache-2.0
"""The markers of Cassandra's agent, which probes are attached to (agent/jni/marker.c)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from qjoule.servers.probe_site import SiteCost


class Role(StrEnum):
    """What a probe reports: `roles` of the registry."""

    REQUEST_BEGINS = "cassandra-request-begins"  # agent/jni/marker.c: (text, bytes, statement, …)
    REQUEST_SAYS = "cassandra-request-says"  # (const void *tags, bytes)
    REQUEST_ENDS = "cassandra-request-ends"
    CONNECTION_MET = "cassandra-connection-met"  # (session, const void *ends)
    TASK_QUEUED = "cassandra-task-queued"  # (request), in the thread that has the request
    TASK_BEGINS = "cassandra-task-begins"  # (request), in another one
    TASK_ENDS = "cassandra-task-ends"


#: The function of each marker.
MARKERS = {
    Role.REQUEST_BEGINS: "qjoule_request_begins",
    Role.REQUEST_SAYS: "qjoule_request_says",
    Role.REQUEST_ENDS: "qjoule_request_ends",
    Role.CONNECTION_MET: "qjoule_connection_met",
    Role.TASK_QUEUED: "qjoule_task_queued",
    Role.TASK_BEGINS: "qjoule_task_begins",
    Role.TASK_ENDS: "qjoule_task_ends",
}


def boundary_cost_ns(costs: Mapping[str, SiteCost]) -> int:
    """Cost of a query with the agent."""
    ends = (Role.REQUEST_BEGINS, Role.REQUEST_ENDS)
    return sum(costs[role].entry_ns for role in ends) if Role.REQUEST_ENDS in costs else 0
