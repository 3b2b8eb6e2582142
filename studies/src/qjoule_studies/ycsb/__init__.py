# SPDX-License-Identifier: Apache-2.0
"""YCSB's core workloads, which go-ycsb runs.

Cooper et al., Benchmarking Cloud Serving Systems with YCSB, SoCC 2010.
"""
