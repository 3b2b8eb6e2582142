"""Drives ``qjoule-tracer``'s energy sources from Python, through a small C program."""
