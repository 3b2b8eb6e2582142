"""Traces made from what other tools have recorded."""
