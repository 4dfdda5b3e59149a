"""Qdrant's JSON, in Qdrant Edge's terms; whatever is not known here is refused by name."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from qdrant_edge import (
    FieldCondition,
    Filter,
    HasIdCondition,
    IntegerIndexParams,
    KeywordIndexParams,
    MatchAny,
    MatchValue,
    NestedCondition,
    Point,
    RangeFloat,
    UpdateOperation,
)


class RefusedError(Exception):
    """An answer that is no success, as Qdrant words it."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status, self.said = status, said


def bad(said: str) -> RefusedError:
    return RefusedError(400, f"Wrong input: {said}")


def fields(found: Any, where: str, *, needs: str = "", may: str = "") -> dict[str, Any]:
    """Check that an object has all that it needs and nothing that is unknown."""
    if not isinstance(found, dict):
        raise bad(f"{where}: an object is expected, found {found!r}")
    needed, known = set(needs.split()), {*needs.split(), *may.split()}
    if missing := needed - found.keys():
        raise bad(f"{where}: missing {sorted(missing)}")
    if unknown := found.keys() - known:
        raise bad(f"{where}: the stand-in doesn't know {sorted(unknown)}")
    return found


def of_type(found: Any, kind: type | tuple[type, ...], where: str) -> Any:
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise bad(f"{where}: {kind} is expected, found {found!r}")
    return found


def point_id(found: Any) -> int | UUID:
    if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
        return found
    try:
        return UUID(found)
    except (ValueError, TypeError, AttributeError) as exc:
        raise bad(f"value {found!r} is not a valid point ID") from exc


def vector(found: Any, size: int) -> list[float]:
    numbers = [float(of_type(n, (int, float), "vector")) for n in of_type(found, list, "vector")]
    if len(numbers) != size:
        raise bad(f"Vector dimension error: expected dim: {size}, got {len(numbers)}")
    return numbers


def point(found: Any, size: int) -> Point:
    told = fields(found, "point", needs="id vector", may="payload")
    payload = of_type(told.get("payload") or {}, dict, "payload")
    return Point(point_id(told["id"]), vector(told["vector"], size), payload)


def payload_of(found: Any) -> list[str] | bool:
    """Read `with_payload`: a list of fields, or yes or no."""
    if isinstance(found, bool):
        return found
    return [of_type(name, str, "with_payload") for name in of_type(found, list, "with_payload")]


def filter_of(found: Any) -> Filter:
    told = fields(found, "filter", may="must should must_not")
    clauses: dict[str, Any] = {
        name: [condition_of(part) for part in of_type(parts, list, name)]
        for name, parts in told.items()
    }
    return Filter(**clauses)


def condition_of(found: Any) -> Any:
    of_type(found, dict, "condition")
    if "has_id" in found:
        ids = fields(found, "has_id", needs="has_id")["has_id"]
        return HasIdCondition({point_id(i) for i in of_type(ids, list, "has_id")})
    if "nested" in found:
        inner = fields(
            fields(found, "nested", needs="nested")["nested"], "nested", needs="key filter"
        )
        return NestedCondition(of_type(inner["key"], str, "key"), filter_of(inner["filter"]))
    if "key" in found:
        return _field_condition(fields(found, "condition", needs="key", may="match range"))
    return filter_of(found)


def _field_condition(found: Mapping[str, Any]) -> FieldCondition:
    key = of_type(found["key"], str, "key")
    if ("match" in found) == ("range" in found):
        raise bad("a condition has a match or a range")
    if "range" in found:
        told = fields(found["range"], "range", may="gt gte lt lte")
        bounds = {name: float(of_type(n, (int, float), name)) for name, n in told.items()}
        return FieldCondition(key, range=RangeFloat(**bounds))
    told = fields(found["match"], "match", may="value any")
    if len(told) != 1:
        raise bad("a match has a value or a list")
    if "value" in told:
        return FieldCondition(key, match=MatchValue(of_type(told["value"], str, "value")))
    values = [of_type(value, str, "any") for value in of_type(told["any"], list, "any")]
    return FieldCondition(key, match=MatchAny(values))


def index_of(found: Any) -> tuple[str, dict[str, Any], UpdateOperation]:
    """Read the making of an index: the field, its schema as it is shown, and Edge's operation."""
    told = fields(found, "index", needs="field_name field_schema")
    name, schema = of_type(told["field_name"], str, "field_name"), told["field_schema"]
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "keyword":
        fields(schema, "field_schema", needs="type", may="is_tenant")
        params: Any = KeywordIndexParams(is_tenant=schema.get("is_tenant", False))
    elif kind == "integer":
        fields(schema, "field_schema", needs="type lookup range")
        params = IntegerIndexParams(lookup=schema["lookup"], range=schema["range"])
    else:
        raise bad(f"the stand-in doesn't know indexes of type {kind!r}")
    shown = {"data_type": kind, "params": schema, "points": 0}
    return name, shown, UpdateOperation.create_field_index(name, params)
