"""One module per command of a caller: decide purely, then write records, versions and log together."""
