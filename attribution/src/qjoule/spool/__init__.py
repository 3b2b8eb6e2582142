# SPDX-License-Identifier: Apache-2.0
"""Recordings as they were captured, and their conversion to the tables of a trace."""
