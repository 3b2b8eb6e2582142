"""PostgreSQL: one process a connection."""
