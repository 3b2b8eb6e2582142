# SPDX-License-Identifier: Apache-2.0
"""Statistics of a study: pure functions on tables of runs (see studies/README.md)."""
