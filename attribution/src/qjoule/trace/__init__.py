"""The trace dataset: reader, writer, and the live stream it is made from."""

from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace

__all__ = ["Meta", "Trace"]
