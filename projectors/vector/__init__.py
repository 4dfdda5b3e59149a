"""Vectors of the records, for search by meaning."""
