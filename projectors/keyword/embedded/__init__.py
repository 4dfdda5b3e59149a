"""The keyword index on tantivy, in this process."""
