"""What the failures of Qdrant's client mean to the loop and to a search.

The client raises classes that have nothing in common: its own two families, what a broken answer
makes its parser raise, an assertion for an answer without a result, and gRPC's.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import (
    ApiException,
    ResponseHandlingException,
    UnexpectedResponse,
)

from canonical.errors import (
    EngineMismatchError,
    EngineRefusedError,
    EngineUnavailableError,
    GnomonError,
)

WRITE: Final = "write"
_SAID_CHARS: Final = 300
_UNREADABLE: Final = (AssertionError, json.JSONDecodeError, UnicodeDecodeError)
_AS_HTTP: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
}
# Of these the server says that it can't take the request as it is, whoever asks and whenever.
_CONTENT: Final = frozenset({400, 413, 422})


@contextmanager
def in_our_terms(operation: str, place: str) -> Iterator[None]:
    """Re-raise the client's errors as what should be done about them.

    Guarantee: whatever the server or the way to it does ends in one of these.
    Raises:    EngineUnavailableError: no usable answer, so a write may or may not have happened;
               also a refused key or address: nothing is lost, and it goes on once that is mended.
               EngineMismatchError: the server itself says that the collection is not there, or
               holds vectors of another dimension. EngineRefusedError: it refuses what is written.
    """
    try:
        yield
    except UnexpectedResponse as exc:
        raise _answered(operation, place, exc.status_code or 0, _said(exc.content)) from exc
    except ResourceExhaustedResponse as exc:
        raise EngineUnavailableError(
            f"{operation}: {place} is busy; it asks to wait {exc.retry_after_s} s"
        ) from exc
    except grpc.RpcError as exc:
        raise _of_grpc(operation, place, exc) from exc
    except ResponseHandlingException as exc:
        raise EngineUnavailableError(f"{operation}: no answer of {place}: {exc.source!r}") from exc
    except (QdrantException, ApiException, *_UNREADABLE) as exc:
        raise EngineUnavailableError(
            f"{operation}: no usable answer of {place}: {type(exc).__name__}: {exc}"
        ) from exc


def _answered(operation: str, place: str, status: int, said: str | None) -> GnomonError:
    told = f"{operation}: {place} answered {status}: {said or 'not as Qdrant does'}"
    if said is None:  # a proxy's page, say: nothing about the index is known
        return EngineUnavailableError(told)
    if status == 404 or "dimension error" in said:  # noqa: PLR2004 - HTTP's own numbers
        return EngineMismatchError(told)
    if status == 409:  # noqa: PLR2004
        return EngineMismatchError(told)
    if status in _CONTENT and operation == WRITE:
        return EngineRefusedError(told)
    return EngineUnavailableError(told)


def _of_grpc(operation: str, place: str, exc: grpc.RpcError) -> GnomonError:
    code = exc.code() if isinstance(exc, grpc.Call) else None
    if code in _AS_HTTP:
        return _answered(operation, place, _AS_HTTP[code], str(exc.details())[:_SAID_CHARS])
    return EngineUnavailableError(f"{operation}: no answer of {place}: {code}: {exc.details()}")


def _said(content: bytes) -> str | None:
    """Return the error that Qdrant tells; None, if this is no answer of Qdrant's."""
    try:
        told = json.loads(content)["status"]["error"]
    except (ValueError, TypeError, KeyError):
        return None
    return str(told)[:_SAID_CHARS]
