# SPDX-License-Identifier: Apache-2.0
"""Pairs of queries over Twitter-like data: each in a worse and a better form.

The pairs are those of Mahajan, Query Optimization and Energy Efficiency of MySQL, MongoDB and
Cassandra (master's thesis, Texas State University, 2016); a pair's `source` names its table there.
"""
