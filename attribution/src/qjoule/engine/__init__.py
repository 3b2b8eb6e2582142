# SPDX-License-Identifier: Apache-2.0
"""Computes joules from a trace or a live stream: reads tables and sums, and calls the model."""
