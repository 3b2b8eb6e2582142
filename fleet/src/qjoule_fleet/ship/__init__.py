# SPDX-License-Identifier: Apache-2.0
"""Copies closed parts from an agent's store to a dataset on any filesystem."""
