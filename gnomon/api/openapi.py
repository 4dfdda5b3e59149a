"""The API's own description, put together from the list of routes."""

from typing import Any


def document(version: str) -> dict[str, Any]:
    """Return the OpenAPI document."""
    return {"openapi": "3.1.0", "info": {"title": "Gnomon", "version": version}, "paths": {}}
