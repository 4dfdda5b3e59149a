"""What every test can ask for, and how a run ends."""

import signal

pytest_plugins = [
    "tests.support.seen",
    "tests.support.postgres",
    "tests.support.builders",
    "tests.support.opensearch",
    "tests.support.processes",
    "tests.support.redis",
    "tests.support.keyword_index",
]

# A run that is told to end stops its Postgres first, as it does at Ctrl-C.
signal.signal(signal.SIGTERM, signal.default_int_handler)
# A shell's background job ignores SIGINT, and so would every command that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
