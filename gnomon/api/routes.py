"""Every route, with what it asks for and what answers it: the one list that all else reads."""

from dataclasses import dataclass
from typing import Final

from canonical.store.api_keys import Right
from gnomon.api import bulk, health, memories, projections, search
from gnomon.api.gate import Endpoint, Rule
from gnomon.api.lanes import Kind
from gnomon.api.uploads import Body


@dataclass(frozen=True, slots=True)
class Route:
    """One method at one path."""

    method: str
    path: str
    endpoint: Endpoint
    rule: Rule

    @property
    def pattern(self) -> str:
        """Return the path as the router matches it.

        What stands for a memory's id may hold slashes once it is decoded: it is a wrong id then,
        and not another path.
        """
        return self.path.replace("{id}", "{id:path}")


READ: Final = Rule(Right.READ, Kind.READ)
WRITE: Final = Rule(Right.WRITE, Kind.WRITE)
WRITE_JSON: Final = Rule(Right.WRITE, Kind.WRITE, Body.JSON)
ADMIN: Final = Rule(Right.ADMIN, Kind.ADMIN)
ANYONE: Final = Rule(None, Kind.ADMIN)

ROUTES: Final = (
    Route("POST", "/v1/memories", memories.post, WRITE_JSON),
    Route("POST", "/v1/memories:bulk", bulk.post, Rule(Right.WRITE, Kind.BULK, Body.LINES)),
    Route("GET", "/v1/memories", memories.list_page, READ),
    Route("DELETE", "/v1/memories", memories.delete_scope, WRITE),
    Route("POST", "/v1/memories/{id}:supersede", memories.supersede, WRITE_JSON),
    Route("GET", "/v1/memories/{id}/history", memories.history, READ),
    Route("GET", "/v1/memories/{id}", memories.get, READ),
    Route("PATCH", "/v1/memories/{id}", memories.patch, WRITE_JSON),
    Route("DELETE", "/v1/memories/{id}", memories.delete, WRITE),
    Route("POST", "/v1/search", search.search, Rule(Right.READ, Kind.SEARCH, Body.JSON)),
    Route(
        "POST", "/v1/queries/{query_id}:used", search.used, Rule(Right.READ, Kind.READ, Body.JSON)
    ),
    Route("GET", "/v1/projections", projections.status, ADMIN),
    Route("POST", "/v1/projections/{name}:pause", projections.pause, ADMIN),
    Route("POST", "/v1/projections/{name}:resume", projections.resume, ADMIN),
    Route("GET", "/v1/projections/{name}/parked", projections.parked, ADMIN),
    Route(
        "POST",
        "/v1/projections/{name}/parked:redrive",
        projections.redrive,
        Rule(Right.ADMIN, Kind.ADMIN, Body.JSON),
    ),
    Route("GET", "/readyz", health.ready, ANYONE),
    Route("GET", "/metrics", health.metrics, ANYONE),
)
