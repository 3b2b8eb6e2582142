"""VoltDB: procedures on site threads of a JVM."""
