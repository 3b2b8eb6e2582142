# SPDX-License-Identifier: Apache-2.0
"""Valkey: Redis' protocol, from a fork of Redis 7.2."""
