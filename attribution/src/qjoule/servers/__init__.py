"""Finds database servers and the points where their queries begin and end."""
