# SPDX-License-Identifier: Apache-2.0
"""Servers of unknown protocol: whatever listens."""
