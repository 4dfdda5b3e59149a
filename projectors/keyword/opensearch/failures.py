"""What OpenSearch's answers, and its silence, mean to the loop and to a search."""

from collections.abc import Iterator
from contextlib import contextmanager

from opensearchpy.exceptions import (
    ConnectionTimeout,
    OpenSearchException,
    SSLError,
    TransportError,
)

from canonical.errors import EngineMismatchError, EngineUnavailableError

TOO_LARGE = 413
# Not now: busy, away, blocked, or our credentials are refused, which heals when they are set right.
NOT_NOW = frozenset({401, 403, 408, 425, 429})
SERVER = 500
NOT_FOUND = 404
LOST = frozenset({"index_not_found_exception", "aliases_not_found_exception"})
CLOSED = frozenset({"index_closed_exception"})


@contextmanager
def in_our_terms(operation: str) -> Iterator[None]:
    """Re-raise the client's errors as what should be done about them.

    Raises: EngineUnavailableError, when it may go through later. A write may have happened: to
            repeat it is safe, to take it for done is not. EngineMismatchError, when the index is
            lost, or the server refuses the request for good.
    """
    try:
        yield
    except TransportError as exc:
        raise _translated(operation, exc) from exc
    except OpenSearchException as exc:  # its message holds the answer, which may quote a document
        raise EngineUnavailableError(f"{operation}: no usable answer from OpenSearch") from exc


@contextmanager
def reading(operation: str) -> Iterator[None]:
    """Take an answer of another shape than OpenSearch's for no answer: it is a proxy's, say."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        raise EngineUnavailableError(f"{operation}: this is no answer of OpenSearch's") from exc


def kind_of(exc: TransportError) -> str:
    """Return the kind of error that the server names, if it names one."""
    info = exc.info if len(exc.args) > 2 else None  # noqa: PLR2004 - status, message, answer
    error = info.get("error") if isinstance(info, dict) else None
    kind = error.get("type") if isinstance(error, dict) else None
    return kind if isinstance(kind, str) else ""


def is_busy(exc: TransportError) -> bool:
    """Tell whether the server answered that it has too much to do, or is not ready."""
    return exc.status_code in (429, 503)


def _translated(
    operation: str, exc: TransportError
) -> EngineUnavailableError | EngineMismatchError:
    status, kind = exc.status_code, kind_of(exc)
    if not isinstance(status, int):
        return EngineUnavailableError(f"{operation}: {_silence(exc)}")
    said = f"{operation}: OpenSearch answered {status}" + (f", {kind}" if kind else "")
    if kind in LOST:
        return EngineMismatchError(f"{said}: the index or the alias is gone")
    # Without a kind a 404 is not the index's: an address or a proxy is wrong, and can be mended.
    if status in NOT_NOW or status >= SERVER or kind in CLOSED or (status == NOT_FOUND):
        return EngineUnavailableError(said)
    return EngineMismatchError(f"{said}: it does not take what this version asks")


def _silence(exc: TransportError) -> str:
    match exc:
        case ConnectionTimeout():
            return "no answer from OpenSearch in time"
        case SSLError():
            return f"no trusted connection to OpenSearch ({exc.error})"
        case _:
            return f"no connection to OpenSearch ({exc.error})"
