"""How a Qdrant server is reached, and what a new collection on it is like."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Final

# A request of 1,000 points costs the server little more than one of 100, and a request that is
# guarded makes it drain its queue of updates first: so few large ones. 16 MiB is half of what a
# server accepts as it comes.
REQUEST_POINTS: Final = 1_000
REQUEST_BYTES: Final = 16 << 20


class Quantisation(Enum):
    """In which form the server keeps vectors for the first pass of a search."""

    NONE = "none"
    INT8 = "int8"  # a quarter of the memory; the best are scored again by the full vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class QdrantSettings:
    """Where the server is; below, what holds of collections that are created from now on."""

    url: str
    api_key: str | None = field(default=None, repr=False)
    ca_file: Path | None = None  # certificates to trust instead of the system's
    prefer_grpc: bool = False
    grpc_port: int = 6334
    timeout: timedelta = timedelta(seconds=20)  # of one request; a search brings its own
    connections: int = 16
    exact: bool = False  # search without the graph: the cost grows with the records in the scope
    request_points: int = REQUEST_POINTS
    request_bytes: int = REQUEST_BYTES

    shards: int | None = None  # None: as many as the server thinks fit
    replicas: int = 1
    write_replicas: int = 1  # how many replicas must have a write before it is acknowledged
    vectors_on_disk: bool = False
    payload_on_disk: bool = True
    quantisation: Quantisation = Quantisation.NONE

    def place(self, name: str) -> str:
        """Return what messages call a collection."""
        return f"{name} at {self.url}"
