"""A connection to a Qdrant server by Qdrant's own client: key, certificates, pool, time-outs."""

import math
import ssl
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import httpx
from qdrant_client import QdrantClient
from typing_extensions import override

from canonical.errors import EngineUnavailableError
from projectors.vector.qdrant.settings import QdrantSettings

# Well below what servers and proxies wait before they close an idle connection (5 s is usual): a
# request that meets the close fails, and is a search that is called degraded for no reason.
IDLE_S: Final = 2.0


def connect(settings: QdrantSettings) -> QdrantClient:
    """Return a client; nothing has been sent yet.

    Raises: EngineUnavailableError, when `ca_file` can't be read.
    """
    trusted, for_grpc = _trusted(settings)
    return QdrantClient(
        url=settings.url,
        port=None,  # a URL without a port means the scheme's own
        # As `api_key` the client would turn to https by itself, and warn where it is not.
        headers={"api-key": settings.api_key} if settings.api_key else None,
        prefer_grpc=settings.prefer_grpc,
        grpc_port=settings.grpc_port,
        grpc_options=for_grpc,
        timeout=whole_seconds(settings.timeout),
        transport=_InTime(verify=trusted, trust_env=False, limits=_pool(settings)),
        trust_env=False,  # settings come from one place
        check_compatibility=False,  # `collection.require_version` is stricter, and waits for it
    )


def whole_seconds(wait: timedelta) -> int:
    """Return a time-out as the client and the server take it: whole seconds, at least one."""
    return max(1, math.ceil(wait.total_seconds()))


def _trusted(settings: QdrantSettings) -> tuple[ssl.SSLContext | bool, dict[str, Any]]:
    if settings.ca_file is None:
        return True, {}
    try:
        context = ssl.create_default_context(cafile=str(settings.ca_file))
        return context, {"root_certificates": settings.ca_file.read_bytes()}
    except OSError as exc:  # ssl.SSLError is one
        raise EngineUnavailableError(
            f"the certificates in {settings.ca_file} can't be read: {exc}"
        ) from exc


def _pool(settings: QdrantSettings) -> httpx.Limits:
    return httpx.Limits(
        max_connections=settings.connections,
        max_keepalive_connections=settings.connections,
        keepalive_expiry=IDLE_S,
    )


class _InTime(httpx.HTTPTransport):
    """Bounds the whole of an answer; httpx's time-out is one for each piece of it."""

    @override
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        ends = time.monotonic() + request.extensions["timeout"]["read"]
        answer = super().handle_request(request)
        assert isinstance(answer.stream, httpx.SyncByteStream)
        answer.stream = _Until(ends, answer.stream)
        return answer


class _Until(httpx.SyncByteStream):
    """Pieces of an answer, as long as there is time."""

    def __init__(self, ends: float, pieces: httpx.SyncByteStream) -> None:
        self._ends, self._pieces = ends, pieces

    @override
    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if time.monotonic() > self._ends:
                raise httpx.ReadTimeout("the answer drips in too slowly")
            yield piece

    @override
    def close(self) -> None:
        self._pieces.close()
