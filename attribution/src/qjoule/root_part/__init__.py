"""The root part (`qjoule-root`), as the rest of qjoule talks to it."""
