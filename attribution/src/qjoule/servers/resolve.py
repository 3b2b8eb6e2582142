# SPDX-License-Identifier: Apache-2.0
"""What each server's executable offers: the probes of the symbol rung, or why there are none."""

from __future__ import annotations

from dataclasses import replace

from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.probing import without_probes
from qjoule.servers.registered import support_of
from qjoule.servers.resolution import Resolution


def resolve(candidate: Candidate, flavour: str, version: str) -> Resolution:
    """What its executable offers. What is missing is described in `problem` or `notes`."""
    try:
        return support_of(flavour).resolve(candidate, version)
    except QjouleError as error:
        return replace(without_probes(candidate), problem=str(error))
