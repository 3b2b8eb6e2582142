# SPDX-License-Identifier: Apache-2.0
"""Sends nothing: observes for some time what the server's own clients do."""

from __future__ import annotations

import time
from collections.abc import Mapping

from qjoule.api import UsageError
from qjoule_studies.servers import products
from qjoule_studies.workload import Outcome, Target, Value

_CLIENT = "the server's own"


class Watch:
    """`settle_s`: before it, for what a run changes to take effect; `seconds`: how long it is."""

    name = "watch"
    flavours = frozenset(products())
    defaults: Mapping[str, Value] = {"seconds": 30.0, "settle_s": 10.0}

    def prepare(self, target: Target, options: Mapping[str, Value]) -> None:
        del target
        if float(options["seconds"]) <= 0:
            raise UsageError("seconds must be more than 0")
        time.sleep(float(options["settle_s"]))

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:
        del target
        begin_s = time.monotonic()
        time.sleep(float(options["seconds"]))
        return Outcome(0, 0, time.monotonic() - begin_s, _CLIENT)
