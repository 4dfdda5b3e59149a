"""From the log to the indexes: one loop, and a writer and a reader per projection."""
