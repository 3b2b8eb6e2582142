"""The trace dataset: reader, writer, and the live stream it is made from."""
