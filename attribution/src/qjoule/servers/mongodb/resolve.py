# SPDX-License-Identifier: Apache-2.0
"""What can be attached to in a mongod, and the cost per query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.mongodb.signatures import Role, boundary_functions
from qjoule.servers.probe_site import SiteCost
from qjoule.servers.probing import check_machine, file_key, probes_of
from qjoule.servers.resolution import Resolution


def resolve(candidate: Candidate, _version: str) -> Resolution:
    """
    Raises:
        QjouleError: not even the identity of its file can be read.
    """
    executable = candidate.executable
    resolution = Resolution(file_key(executable))
    try:
        check_machine(executable)
        boundary = probes_of(executable, boundary_functions(executable))
    except QjouleError as error:
        return replace(resolution, problem=str(error))
    return replace(resolution, boundary=boundary)


def boundary_cost_ns(costs: Mapping[str, SiteCost]) -> int:
    """Cost of a query."""
    return costs[Role.DONE].both_ns if Role.DONE in costs else 0
