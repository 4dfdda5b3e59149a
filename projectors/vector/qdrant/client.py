"""A connection to a Qdrant server by Qdrant's own client: key, certificates, pool, time-outs."""

import math
import ssl
from datetime import timedelta
from typing import Any, Final

import httpx
from qdrant_client import QdrantClient

from projectors.vector.qdrant.settings import QdrantSettings

# Well below what servers and proxies wait before they close an idle connection (5 s is usual): a
# request that meets the close fails, and is a search that is called degraded for no reason.
IDLE_S: Final = 2.0


def connect(settings: QdrantSettings) -> QdrantClient:
    """Return a client; nothing has been sent yet.

    Raises: OSError, ssl.SSLError, when `ca_file` can't be read.
    """
    pool = httpx.Limits(
        max_connections=settings.connections,
        max_keepalive_connections=settings.connections,
        keepalive_expiry=IDLE_S,
    )
    trusted: dict[str, Any] = {}
    for_grpc: dict[str, Any] = {}
    if settings.ca_file is not None:
        trusted["verify"] = ssl.create_default_context(cafile=str(settings.ca_file))
        for_grpc["root_certificates"] = settings.ca_file.read_bytes()
    return QdrantClient(
        url=settings.url,
        port=None,  # a URL without a port means the scheme's own
        # As `api_key` the client would turn to https by itself, and warn where it is not.
        headers={"api-key": settings.api_key} if settings.api_key else None,
        prefer_grpc=settings.prefer_grpc,
        grpc_port=settings.grpc_port,
        grpc_options=for_grpc,
        timeout=whole_seconds(settings.timeout),
        limits=pool,
        trust_env=False,  # settings come from one place
        check_compatibility=False,  # `collection.require_version` is stricter, and waits for it
        **trusted,
    )


def whole_seconds(wait: timedelta) -> int:
    """Return a time-out as the client and the server take it: whole seconds, at least one."""
    return max(1, math.ceil(wait.total_seconds()))
