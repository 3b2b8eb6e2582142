# SPDX-License-Identifier: Apache-2.0
"""From a trace or a live stream to joules: reads tables and sums, and wires the model to them."""
