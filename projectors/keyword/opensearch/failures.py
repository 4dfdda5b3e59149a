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
BUSY = frozenset({429, 503})
LOST = frozenset({"index_not_found_exception", "aliases_not_found_exception"})


@contextmanager
def in_our_terms(operation: str) -> Iterator[None]:
    """Re-raise the client's errors as what should be done about them.

    Guarantee: whatever the server, or the way to it, does ends in one of these.
    Raises:    EngineUnavailableError: no usable answer. A write may have happened: to repeat it is
               safe, to take it for done is not. Also when our credentials, rights or requests are
               refused, or the index is closed or blocked: nothing is lost, and it goes on once that
               is mended. EngineMismatchError: the server itself says that the index is gone; an
               index is given up and built again on its word alone.
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


def told(said: str, kind: str) -> EngineUnavailableError | EngineMismatchError:
    """Return what a kind of error, which the server names, means."""
    if kind in LOST:
        return EngineMismatchError(f"{said}, {kind}: the index or the alias is gone")
    return EngineUnavailableError(f"{said}, {kind or 'and not as it does'}")


def _translated(
    operation: str, exc: TransportError
) -> EngineUnavailableError | EngineMismatchError:
    status, kind = exc.status_code, kind_of(exc)
    if not isinstance(status, int):
        return EngineUnavailableError(f"{operation}: {_silence(exc)}")
    return told(f"{operation}: OpenSearch answered {status}", kind)


def _silence(exc: TransportError) -> str:
    match exc:
        case ConnectionTimeout():
            return "no answer from OpenSearch in time"
        case SSLError():
            return f"no trusted connection to OpenSearch ({exc.error})"
        case _:
            return f"no connection to OpenSearch ({exc.error})"
