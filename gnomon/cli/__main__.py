"""Lets `python -m gnomon.cli` be the command `gnomon`."""

from gnomon.cli.main import run

run()
