"""Names found in the records, linked to them inside their scope."""
