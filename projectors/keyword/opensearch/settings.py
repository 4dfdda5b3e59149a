"""How an OpenSearch server is reached, and how its indexes are made."""

import hashlib
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from projectors.keyword import schema
from projectors.keyword.relevance import K1, B

_LAYOUT = 1  # raised when documents or the mapping change


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSearchSettings:
    """Where, as whom, how patiently; and what an index is made with.

    urls:             nodes of one cluster, as http:// or https:// with a port.
    ca_file:          who signs its certificates, if that is none of the well-known ones.
    aws_region:       set, requests are signed for that region; `aws_service`: `es`.
    retry_for:        how long a page waits for what the server refuses under load.
    bulk_bytes:       of one request, but for a document that is larger by itself.
    route_by_tenant:  a tenant's documents lie in one shard, and its search asks that one alone.
    """

    urls: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    verify_certificates: bool = True
    aws_region: str | None = None
    aws_service: str = "es"
    timeout: timedelta = timedelta(seconds=10)
    retry_for: timedelta = timedelta(seconds=10)
    connections: int = 16
    bulk_bytes: int = 5 << 20
    bulk_items: int = 1_000
    shards: int = 1
    replicas: int = 1
    refresh_interval: str = "1s"
    route_by_tenant: bool = True
    k1: float = K1
    b: float = B

    def fingerprint(self) -> str:
        """Return what must be equal in an index and in the program that uses it."""
        made = f"opensearch {_LAYOUT} {schema.fingerprint()} {self.route_by_tenant}"
        return hashlib.sha256(f"{made} {self.k1:g} {self.b:g}".encode()).hexdigest()[:32]
