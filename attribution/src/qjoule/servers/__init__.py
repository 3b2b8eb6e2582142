# SPDX-License-Identifier: Apache-2.0
"""Finds database servers and the points where their queries begin and end."""
