"""How an error is told where everybody may read: without a word that may be some tenant's."""

import traceback
from pathlib import Path

from canonical.errors import GnomonError

FAILURES = 3  # in a row: more are no passing fault, and whoever watches is told


def told(error: Exception) -> str:
    """Tell of an error of ours its code and hint, of any other its class and place.

    Messages are left out: vendors quote what they were sent, and Postgres its parameters.
    """
    if isinstance(error, GnomonError):
        return f"{error.code}. {error.hint}"
    return placed(error)


def placed(error: Exception) -> str:
    """Tell an error's class, and the file and line where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{at}"
