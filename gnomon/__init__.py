"""The face: settings and wiring, HTTP API, command line."""
