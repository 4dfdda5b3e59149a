"""The API's own description, put together from the list of routes."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from gnomon.api import examples, health, problems
from gnomon.api.operations import JSON, OPERATIONS, PARAMETERS, Operation, Shown
from gnomon.api.routes import ROUTES, Route
from gnomon.api.schemas import SCHEMAS, TEXT, UUID, ref

Json = dict[str, Any]

ABOUT: Final = (
    "A memory backend for LLM agents. A write answers once it is committed; a search shows what "
    "the canonical store holds. Every error is a problem document with a stable `code`."
)
ALIVE_PATH: Final = "/healthz"
UUID_PARAMETERS: Final = frozenset({"id", "query_id"})
KEY: Final = {"type": "http", "scheme": "bearer"}
# Without a key while none was ever made; then the server answers to its own machine only.
SECURITY: Final[list[Json]] = [{"key": []}, {}]


def document(version: str) -> Json:
    """Return the OpenAPI document."""
    paths: dict[str, Json] = {ALIVE_PATH: {"get": _alive()}}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Gnomon", "version": version, "description": ABOUT},
        "paths": paths,
        "components": {"schemas": dict(SCHEMAS), "securitySchemes": {"key": KEY}},
    }


def _operation(route: Route) -> Json:
    described = OPERATIONS[route.endpoint]
    said = _words(route.endpoint) | {
        "operationId": _operation_id(route),
        "tags": [route.path.split("/")[2].partition(":")[0] if "/v1/" in route.path else "watch"],
        "parameters": [*_path_parameters(route.path), *_query_parameters(described)],
        "responses": _responses(described),
        "security": SECURITY if route.rule.right is not None else [],
    }
    if described.body:
        content = {described.media_type: _content(described.body)}
        said["requestBody"] = {"required": True, "content": content}
    if route.rule.right is not None:
        said["description"] += f"\n\nNeeds the right `{route.rule.right.value}`."
    return said


def _words(endpoint: Callable[..., object]) -> Json:
    text = inspect.getdoc(endpoint) or ""
    return {"summary": text.partition("\n")[0].rstrip("."), "description": text}


def _operation_id(route: Route) -> str:
    module = route.endpoint.__module__.rpartition(".")[2]
    return f"{module}_{route.endpoint.__name__}"


def _path_parameters(path: str) -> list[Json]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": UUID if name in UUID_PARAMETERS else {"type": "string"},
            "example": examples.PATHS[name],
        }
        for name in re.findall(r"{(\w+)}", path)
    ]


def _query_parameters(described: Operation) -> list[Json]:
    return [
        {"name": name, "in": "query", "required": False, "schema": PARAMETERS[name]}
        | ({"example": examples.QUERIES[name]} if name in examples.QUERIES else {})
        for name in sorted(described.parameters)
    ]


def _responses(described: Operation) -> Json:
    problem = {
        "description": "A problem document; docs/reference/errors.md lists every code.",
        "content": {problems.MEDIA_TYPE: _content({"Problem": examples.PROBLEM})},
    }
    answers = {
        str(status): {
            "description": "The answer.",
            "content": {described.answer_type: _content(shown)},
            **_headers(described),
        }
        for status, shown in described.answers.items()
    }
    return {**answers, "default": problem}


def _headers(described: Operation) -> Json:
    said = {name: {"description": w, "schema": TEXT} for name, w in described.headers.items()}
    return {"headers": said} if said else {}


def _content(shown: Shown) -> Json:
    """Describe a body that is one of some shapes; a text is shown, and has no shape."""
    shapes = [ref(name) if name in SCHEMAS else {"type": "string"} for name in shown]
    schema = shapes[0] if len(shapes) == 1 else {"oneOf": shapes}
    return {
        "schema": schema,
        "examples": {name: {"value": example} for name, example in shown.items()},
    }


def _alive() -> Json:
    answer = {"description": "The answer.", "content": {JSON: _content({"Alive": ALIVE})}}
    return {
        **_words(health.alive),
        "operationId": "health_alive",
        "tags": ["watch"],
        "responses": {"200": answer},
        "security": [],
    }


ALIVE: Final[Mapping[str, str]] = {"status": "ok"}
