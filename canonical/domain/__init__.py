"""Plain Python: what a record, a scope, a filter and a position are, and the decisions about them."""
