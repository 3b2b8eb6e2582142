# SPDX-License-Identifier: Apache-2.0
"""Exports a trace's joules to other tools: profilers and trace viewers."""
