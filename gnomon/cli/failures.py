"""How a command ends when it can't do what was asked: exit codes, and errors with a hint."""

from enum import IntEnum
from typing import Any

from canonical.errors import (
    GnomonError,
    HaltError,
    StateInUseError,
    StateUnusableError,
    TransientError,
)


class Exit(IntEnum):
    """The exit codes, which scripts may rely on; docs/reference/cli.md lists them."""

    OK = 0
    REFUSED = 1  # refused, not found, a broken promise found: change the request or look
    USAGE = 2  # an option or an argument can't be read
    UNREACHABLE = 3  # no server answers
    TRANSIENT = 4  # it may go through when it is tried again
    HALT = 5  # an invariant broke, or the server failed in a way it should not
    INTERRUPTED = 130  # Ctrl-C


class CommandError(Exception):
    """Ends a command: printed as code, message and hint, without a traceback."""

    def __init__(
        self, code: str, message: str, hint: str, exit_code: Exit, field: str | None = None
    ) -> None:
        """Say what is wrong, what to do next, and with which code the command ends."""
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint
        self.exit, self.field = exit_code, field

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints on standard error."""
        said = {"code": self.code, "message": self.message, "hint": self.hint}
        return {"error": said | ({} if self.field is None else {"field": self.field})}


def unreachable(url: str, why: object) -> CommandError:
    """Say that no server answers, and how to start one."""
    return CommandError(
        "server_unreachable",
        f"no server answers at {url} ({why})",
        "Start one with `gnomon up`, or name a running one with --url or GNOMON_URL.",
        Exit.UNREACHABLE,
    )


def unmet(expected: str, seen: str) -> CommandError:
    """Say that something is not as it was promised to be."""
    return CommandError(
        "not_as_promised",
        f"expected {expected}; seen: {seen}",
        "This is a bug in Gnomon, or someone else changes the same data: please report it.",
        Exit.REFUSED,
    )


def of(error: GnomonError) -> CommandError:
    """Translate an error of this program's own parts."""
    match error:
        case TransientError():
            code = Exit.TRANSIENT
        case StateInUseError() | StateUnusableError():
            code = Exit.REFUSED  # nothing is broken: the folder is another's
        case HaltError():
            code = Exit.HALT
        case _:
            code = Exit.REFUSED
    return CommandError(error.code, str(error), error.hint, code, getattr(error, "field", None))
