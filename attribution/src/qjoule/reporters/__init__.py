"""Show attributions; compute no energy."""
