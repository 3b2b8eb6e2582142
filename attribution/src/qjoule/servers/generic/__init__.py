"""Servers of unknown protocol: whatever listens."""
