# SPDX-License-Identifier: Apache-2.0
"""Traces made from what other tools have recorded."""
