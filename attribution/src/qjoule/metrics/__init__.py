# SPDX-License-Identifier: Apache-2.0
"""Counters for Prometheus: bounded series, their exposition, and the HTTP server for it."""
