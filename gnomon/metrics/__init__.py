"""What a process counts, and where Prometheus reads it."""
