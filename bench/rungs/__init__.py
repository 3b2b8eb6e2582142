"""What a query costs its server on each rung."""
