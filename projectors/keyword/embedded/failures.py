"""What tantivy's errors mean to the loop and to a search."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from canonical.errors import EngineMismatchError, EngineUnavailableError


@contextmanager
def in_our_terms(directory: Path, operation: str) -> Iterator[None]:
    """Re-raise tantivy's errors as what should be done about them.

    Raises: EngineUnavailableError, when it may go through later (a full disk, a held lock).
            EngineMismatchError, when the index is lost or damaged: it is built again.
    """
    try:
        yield
    except (ValueError, OSError) as exc:
        raise _translated(exc, directory, operation) from exc
    except BaseException as exc:
        # Damaged bytes make the Rust side panic, which is no Exception and can't be imported.
        if type(exc).__name__ != "PanicException":
            raise
        raise EngineMismatchError(f"{operation}: the index in {directory} is damaged") from exc


def _translated(
    exc: Exception, directory: Path, operation: str
) -> EngineUnavailableError | EngineMismatchError:
    said = str(exc)
    if "LockBusy" in said:
        return EngineUnavailableError(
            f"{operation}: another process has the index in {directory} open; only one may"
        )
    if not (directory / "meta.json").is_file():
        return EngineMismatchError(f"{operation}: the index in {directory} is gone")
    if _means_damage(said):
        return EngineMismatchError(f"{operation}: the index in {directory} is damaged: {said}")
    return EngineUnavailableError(f"{operation}: {said}")


def _means_damage(said: str) -> bool:
    signs = ("corrupt", "FileDoesNotExist", "InvalidData", "schema", "Incompatible")
    return any(sign in said for sign in signs)
