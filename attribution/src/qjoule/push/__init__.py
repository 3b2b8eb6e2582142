# SPDX-License-Identifier: Apache-2.0
"""A program that sends an agent's metrics to others, by OTLP: `python -m qjoule.push`."""
