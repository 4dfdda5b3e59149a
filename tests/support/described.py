"""Holds answers against what the API's own description says of them."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from tests.support import json_schema

Json = dict[str, Any]
LINES = "application/x-ndjson"
BULK_LINE = {"$ref": "#/components/schemas/BulkLine"}


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Json]]:
    """Give method, path and description of each operation."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def operation_at(document: Mapping[str, Any], method: str, path: str) -> Json | None:
    """Return what a request reaches: the path with the fewest places, as the router has it."""
    at = [
        (template.count("{"), operation)
        for verb, template, operation in operations(document)
        if verb == method and re.fullmatch(re.sub(r"{\w+}", "(.+)", template), path)
    ]
    return min(at, key=lambda one: one[0])[1] if at else None


def faults(document: Mapping[str, Any], answer: httpx.Response) -> list[str]:
    """Say in what an answer is not as described; what is not described is not judged."""
    request = answer.request
    operation = operation_at(document, request.method, request.url.path)
    if operation is None:
        return []
    answers = operation["responses"]
    media_type = answer.headers.get("Content-Type", "")
    where = f"{request.method} {request.url.path} {answer.status_code}"
    described = answers.get(str(answer.status_code)) or answers.get("default", {"content": {}})
    if media_type not in described["content"]:
        return [f"{where}: {media_type} is not described"]
    if media_type == LINES:
        lines = [json.loads(line) for line in answer.text.splitlines()]
        return [one for line in lines for one in json_schema.faults(line, BULK_LINE, document)]
    schema = described["content"][media_type]["schema"]
    value = answer.text if media_type.startswith("text/") else answer.json()
    return json_schema.faults(value, schema, document)
