"""The command `gnomon` from its first moment: `python -m gnomon.cli` is the same."""

import signal


def run() -> None:
    """Load the command line and run it; a Ctrl-C before that ends the process without a word.

    While modules are loaded nothing is open that a KeyboardInterrupt could close, and it would be
    printed as a traceback. A command that has begun hears it as usual (`session.command`).
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gnomon.cli import main  # noqa: PLC0415 - loaded under the signal's rule

    main.run()


if __name__ == "__main__":
    run()
