"""Pure functions on arrays: segments, windows and energy to joules per owner."""
