"""Terms of the records, for search by words (BM25)."""
