"""What Qdrant Edge's errors mean to the loop and to a search."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from canonical.errors import EngineMismatchError, EngineUnavailableError

# The operating system's words for what another attempt, or an operator, can mend.
_PASSING = ("No space left", "Permission denied", "Too many open files", "Cannot allocate")


@contextmanager
def in_our_terms(directory: Path, operation: str) -> Iterator[None]:
    """Re-raise Edge's errors as what should be done about them.

    Raises: EngineUnavailableError, when it may go through later (a full disk, a held lock).
            EngineMismatchError, when the index is lost or damaged: it is built again.
    """
    try:
        yield
    except OSError as exc:
        raise _translated(exc, directory, operation) from exc
    except BaseException as exc:
        # Edge raises nothing narrower than Exception itself; a panic of its Rust side is not even
        # that, and can't be imported. What is narrower is a mistake of ours.
        if type(exc).__name__ == "PanicException":
            raise EngineMismatchError(
                f"{operation}: the index in {directory} is damaged: {exc}"
            ) from exc
        if type(exc) is not Exception:
            raise
        raise _translated(exc, directory, operation) from exc


def _translated(
    exc: Exception, directory: Path, operation: str
) -> EngineUnavailableError | EngineMismatchError:
    said = str(exc)
    if "WouldBlock" in said:
        return EngineUnavailableError(
            f"{operation}: another process has the index in {directory} open; only one may"
        )
    if not directory.is_dir() or isinstance(exc, FileNotFoundError):
        return EngineMismatchError(f"{operation}: the index in {directory} is gone")
    if operation == "open" and not any(sign in said for sign in _PASSING):
        return EngineMismatchError(f"{operation}: the index in {directory} is damaged: {said}")
    return EngineUnavailableError(f"{operation}: {said}")
