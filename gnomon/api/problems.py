"""Errors as callers get them: RFC 9457 problem documents with a code, a hint and the field."""

import inspect
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from canonical import tracing
from canonical.errors import GnomonError, TransientError
from gnomon.api.refusals import InternalError
from gnomon.api.rendering import line

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
# What an error may say beside its message; text, numbers and nothing of a record.
FIELDS: Final = ("field", "expected", "current", "size", "limit", "unit")


def document(exc: GnomonError) -> dict[str, Any]:
    """Describe a deliberate error."""
    said = {name: value for name in FIELDS if (value := getattr(exc, name, None)) is not None}
    if (request_id := tracing.request_id()) is not None:
        said["request_id"] = request_id
    summary = (inspect.getdoc(type(exc)) or "").partition("\n")[0]
    return {
        "type": f"urn:gnomon:error:{exc.code}",
        "title": summary.rstrip("."),
        "status": exc.status,
        "detail": str(exc),
        "code": exc.code,
        "hint": exc.hint,
        **said,
    }


def response(exc: GnomonError, headers: Mapping[str, str] | None = None) -> Response:
    """Answer a request with a deliberate error."""
    return Response(
        line(document(exc)), exc.status, {**headers_of(exc), **(headers or {})}, MEDIA_TYPE
    )


def headers_of(exc: GnomonError) -> dict[str, str]:
    """Return the headers that belong to an error's status."""
    if isinstance(exc, TransientError):
        return {"Retry-After": str(RETRY_AFTER_S)}
    return {"WWW-Authenticate": "Bearer"} if exc.status == 401 else {}  # noqa: PLR2004 - HTTP's own


INTERNAL: Final = InternalError("the server failed; nothing more is said here")
