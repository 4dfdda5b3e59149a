"""What the HTTP API answers, as far as the command line reads it; docs/reference/http-api.md."""

from typing import Any, TypedDict


class Write(TypedDict):
    """A command on one memory that was acknowledged."""

    id: str
    version: int
    status: str
    position: str
    replayed: bool


class ScopeDelete(TypedDict):
    """A scope's memories that were deleted."""

    count: int
    status: str
    position: str
    replayed: bool


class Memory(TypedDict, total=False):
    """A memory's present state; a hit has `score`, `relevance` and maybe `explain` as well."""

    id: str
    version: int
    status: str
    text: str
    user_id: str | None
    agent_id: str | None
    run_id: str | None
    metadata: dict[str, Any]
    created_at: str
    updated_at: str
    valid_from: str | None
    valid_to: str | None
    expires_at: str | None
    tombstone: dict[str, Any] | None
    score: float
    relevance: float
    explain: dict[str, Any]


class Version(TypedDict, total=False):
    """One state in a memory's history."""

    version: int
    op: str
    status: str
    text: str
    at: str
    by: str | None
    why: str | None


class History(TypedDict):
    """Every version of a memory."""

    items: list[Version]


class Found(TypedDict, total=False):
    """What a search found."""

    items: list[Memory]
    query_id: str
    degraded: list[dict[str, Any]]
    scope_records: int
    candidates: list[dict[str, Any]]
    seconds: dict[str, float]


class Listed(TypedDict):
    """A page of a list."""

    items: list[dict[str, Any]]
    next_cursor: str | None
