"""One module per command: decide purely, then write records, versions and log together."""
