"""From a query to records: candidates of every leg, fused, re-checked against canonical state."""
