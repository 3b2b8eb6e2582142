# SPDX-License-Identifier: Apache-2.0
"""YCSB's core workloads: what is drawn, and a client for it on the ordinary drivers.

Cooper et al., Benchmarking Cloud Serving Systems with YCSB, SoCC 2010.
"""
