# SPDX-License-Identifier: Apache-2.0
"""Sends the agent's metrics to others, by OTLP."""
