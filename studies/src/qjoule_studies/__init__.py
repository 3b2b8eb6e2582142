# SPDX-License-Identifier: Apache-2.0
"""Studies: workloads run against a server by a plan, and the analysis of their runs."""

__version__ = "0.1.0"
