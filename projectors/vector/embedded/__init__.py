"""The vector index in this process: Qdrant Edge."""
