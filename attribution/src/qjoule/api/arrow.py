# SPDX-License-Identifier: Apache-2.0
"""Modules of Arrow, loaded when they are first used."""

from qjoule.lazy_import import leave_pandas_out, pa, pc, pq

__all__ = ["leave_pandas_out", "pa", "pc", "pq"]
