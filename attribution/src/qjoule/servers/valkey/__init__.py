"""Valkey: Redis' protocol, from a fork of Redis 7.2."""
