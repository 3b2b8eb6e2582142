# SPDX-License-Identifier: Apache-2.0
"""Adds up the cost of one request over all servers and hosts that it used."""
