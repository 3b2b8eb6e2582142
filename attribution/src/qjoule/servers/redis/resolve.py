# SPDX-License-Identifier: Apache-2.0
"""Redis has no function that probes would be attached to."""

from __future__ import annotations

from qjoule.servers.candidate import Candidate
from qjoule.servers.probing import file_key
from qjoule.servers.resolution import Resolution


def resolve(candidate: Candidate, _version: str) -> Resolution:
    """
    Raises:
        QjouleError: not even the identity of its file can be read.
    """
    return Resolution(file_key(candidate.executable), problem="Redis has none")
