"""The physical test of `qjoule doctor --physical`: known loads on a server of its own, recorded."""
