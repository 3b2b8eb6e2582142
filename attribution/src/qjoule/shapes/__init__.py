"""Shapes: statements with their literals taken out, and the ids of shapes."""

from qjoule.shapes.safe_text import sanitise
from qjoule.shapes.shape import Shape, fingerprint, summary

__all__ = ["Shape", "fingerprint", "sanitise", "summary"]
