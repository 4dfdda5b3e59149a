"""Plain Python: what records, scopes, filters and positions are, and the decisions about them."""
