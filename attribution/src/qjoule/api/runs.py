# SPDX-License-Identifier: Apache-2.0
"""`runs.jsonl`: the runs of a study, which the report page also shows."""

from qjoule.report.study_runs import FACTOR, FILE, Run, read_runs

__all__ = ["FACTOR", "FILE", "Run", "read_runs"]
