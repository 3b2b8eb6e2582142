"""What the five studies printed, recomputed from their own numbers."""
