# SPDX-License-Identifier: Apache-2.0
"""The kinds of work that a study can run, by name; each is loaded when it is asked for."""

from __future__ import annotations

import importlib
import re
from typing import cast

from qjoule.api import QjouleError, UsageError
from qjoule_studies.workload import Workload

WORKLOADS = {
    "ycsb": "qjoule_studies.workloads.ycsb:Ycsb",
    "twitter": "qjoule_studies.workloads.twitter:Twitter",
    "operators": "qjoule_studies.workloads.operators:Operators",
    "tpch": "qjoule_studies.workloads.tpch:Tpch",
    "load": "qjoule_studies.workloads.load:Load",
    "watch": "qjoule_studies.workloads.watch:Watch",
    "replay": "qjoule_studies.workloads.replay:Replay",
}
_PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def workload(name: str) -> Workload:
    """A workload by its name, or a class of somebody's own as MODULE:CLASS.

    Raises:
        UsageError: there is none of that name.
        QjouleError: what it needs is not installed.
    """
    place = WORKLOADS.get(name, name)
    if not _PLACE.fullmatch(place):
        names = ", ".join(WORKLOADS)
        raise UsageError(f"there is no workload {name!r}: use {names}, or MODULE:CLASS of your own")
    module, _, kind = place.partition(":")
    try:
        return cast(Workload, getattr(importlib.import_module(module), kind)())
    except ImportError as error:
        if name in WORKLOADS and not (error.name or "").startswith("qjoule"):
            raise QjouleError(
                f"workload {name} needs {error.name}: pip install 'qjoule-studies[bench]'"
            ) from error
        raise QjouleError(f"workload {name} cannot be loaded: {error}") from error
    except AttributeError as error:
        raise UsageError(f"workload {name} cannot be loaded: {error}") from error
