"""Every version of every record, hash-chained."""
