# SPDX-License-Identifier: Apache-2.0
"""Connections of workloads to a target: a module for each server, on its ordinary driver.

Where a target names no database, that of the workload is made.
"""
