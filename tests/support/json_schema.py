"""Checks values against the part of JSON Schema that the API's description uses."""

from collections.abc import Mapping
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
KNOWN = {
    *("$ref", "oneOf", "type", "enum", "items", "properties", "required", "additionalProperties"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("description", "default", "format"),
}


def faults(
    value: Any, schema: Mapping[str, Any], document: Mapping[str, Any], at: str = "$"
) -> list[str]:
    """Say where a value is not what a schema says; empty if it is."""
    assert schema.keys() <= KNOWN, schema.keys() - KNOWN
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/components/schemas/")
        return faults(value, document["components"]["schemas"][name], document, at)
    if "oneOf" in schema:
        tried = [faults(value, one, document, at) for one in schema["oneOf"]]
        return [] if tried.count([]) == 1 else [f"{at}: fits {tried.count([])} of {tried}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r} is none of {schema['enum']}"]
    if not _is_of_type(value, schema.get("type")):
        return [f"{at}: {value!r} is not {schema['type']}"]
    return _inner_faults(value, schema, document, at)


def _inner_faults(
    value: Any, schema: Mapping[str, Any], document: Mapping[str, Any], at: str
) -> list[str]:
    if isinstance(value, dict):
        return _object_faults(value, schema, document, at)
    if not isinstance(value, list):
        return _bound_faults(value, schema, at)
    bounded = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 10**9)
    inner = [
        fault
        for n, item in enumerate(value)
        for fault in faults(item, schema.get("items", {}), document, f"{at}[{n}]")
    ]
    return inner if bounded else [f"{at}: {len(value)} items", *inner]


def _is_of_type(value: Any, kind: str | list[str] | None) -> bool:
    if kind is None:
        return True
    kinds = [kind] if isinstance(kind, str) else kind
    if isinstance(value, bool):
        return "boolean" in kinds
    return any(isinstance(value, TYPES[one]) for one in kinds)


def _object_faults(
    value: dict[str, Any], schema: Mapping[str, Any], document: Mapping[str, Any], at: str
) -> list[str]:
    known = schema.get("properties", {})
    more = schema.get("additionalProperties", True)
    found = [f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value]
    for name, inner in value.items():
        here = f"{at}.{name}"
        if name in known:
            found += faults(inner, known[name], document, here)
        elif more is False:
            found.append(f"{here}: is not described")
        elif isinstance(more, dict):
            found += faults(inner, more, document, here)
    return found


def _bound_faults(value: Any, schema: Mapping[str, Any], at: str) -> list[str]:
    if isinstance(value, str):
        low, high = schema.get("minLength", 0), schema.get("maxLength", 10**9)
        return [] if low <= len(value) <= high else [f"{at}: {len(value)} characters"]
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum", -(10**30)), schema.get("maximum", 10**30)
        return [] if low <= value <= high else [f"{at}: {value} is out of bounds"]
    return []
