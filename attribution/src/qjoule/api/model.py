# SPDX-License-Identifier: Apache-2.0
"""Values of the model: energies, their errors, labels, policies, array types."""

from qjoule.model.arrays import F64, real_sums
from qjoule.model.call_outcomes import Waits
from qjoule.model.coefficients import TOTAL_ERROR, IdlePolicy
from qjoule.model.energy import I64, Bool
from qjoule.model.interval import Z95, EnergyErrors, RowErrors, of_recordings
from qjoule.model.labels import BY_CALLS, NONE_LABEL, GroupLabel
from qjoule.model.latency import from_histograms
from qjoule.model.ledger import Ledger, main_domain
from qjoule.model.result import Attribution, Row
from qjoule.model.same_total import NOT_EQUALLY, with_total_error

__all__ = [
    "BY_CALLS",
    "F64",
    "I64",
    "NONE_LABEL",
    "NOT_EQUALLY",
    "TOTAL_ERROR",
    "Z95",
    "Attribution",
    "Bool",
    "EnergyErrors",
    "GroupLabel",
    "IdlePolicy",
    "Ledger",
    "Row",
    "RowErrors",
    "Waits",
    "from_histograms",
    "main_domain",
    "of_recordings",
    "real_sums",
    "with_total_error",
]
