"""How true the attributed joules are: a machine whose energy is known, and what it shows of it."""
