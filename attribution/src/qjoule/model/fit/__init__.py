"""Fits: what windows tell about a machine's power and about who draws it."""
