"""Redis: one thread executes the commands of all connections."""
