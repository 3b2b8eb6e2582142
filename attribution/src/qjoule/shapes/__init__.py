"""Statements without their literals: shapes, and the fingerprints that name them."""
