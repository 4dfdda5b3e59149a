import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gnomon.api.refusals  # noqa: F401 - its classes are part of the tree
from canonical.domain.commands import CHANGE_FIELDS, NEW_FIELDS, SCOPE_FIELDS
from canonical.errors import GnomonError, TransientError, VersionConflictError
from gnomon.api import bulk, memories, openapi, problems, questions, rendering
from gnomon.api.refusals import OverloadedError
from gnomon.api.routes import ROUTES
from tests.support import json_schema
from tests.support.metrics import filled, told

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
DOCUMENT = openapi.document("1.2.3")
NOBODY = "\u2013"  # a dash
FAMILIES = ("RejectedError", "TransientError", "PoisonError", "HaltError")

CONTROL = {"expected_version", "mutation_id"}
SEARCHED = {"query", "filter", "top_k", "threshold", "after", "as_of", "explain"}
BODIES = {
    "NewMemory": NEW_FIELDS,
    "Addition": NEW_FIELDS | {"mutation_id"},
    "ListAddition": {"memories", "mutation_id"},
    "Change": CHANGE_FIELDS | CONTROL,
    "Supersession": NEW_FIELDS | CONTROL,
    "Question": SCOPE_FIELDS | SEARCHED | {"show_expired", "include_superseded"},
    "Usage": {"packed", "used"},
    "Redrive": {"ids"},
}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if "requestBody" in operation:
        yield from operation["requestBody"]["content"].items()
    for answer in operation["responses"].values():
        yield from answer["content"].items()


def values(media_type: str, content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give each example by the shape that it has."""
    for name, example in content["examples"].items():
        if media_type == bulk.MEDIA_TYPE:
            shape = "NewMemory" if name == "BulkLines" else "BulkLine"
            for line in example["value"].splitlines():
                yield shape, json.loads(line)
        elif not media_type.startswith("text/"):
            yield name, example["value"]


def test_every_route_is_described_and_nothing_else() -> None:
    served = {(route.method, route.path) for route in ROUTES} | {("GET", "/healthz")}
    assert {(method, path) for method, path, _ in operations()} == served


@pytest.mark.parametrize(
    "operation", [one for *_, one in operations()], ids=[f"{m} {p}" for m, p, _ in operations()]
)
def test_every_route_has_words_examples_and_parameters(operation: dict[str, Any]) -> None:
    assert operation["summary"]
    for media_type, content in contents(operation):
        assert content["examples"], media_type
        for shape, value in values(media_type, content):
            schema = {"$ref": f"#/components/schemas/{shape}"}
            assert json_schema.faults(value, schema, DOCUMENT) == []


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for *_, operation in operations()]
    assert len(set(ids)) == len(ids)


def test_every_reference_leads_to_a_shape_and_every_shape_is_referred_to() -> None:
    said = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DOCUMENT)))
    unnamed = {"BulkLine"}  # of the lines of a text, which has no shape of its own
    assert said | unnamed == DOCUMENT["components"]["schemas"].keys()


@pytest.mark.parametrize("name", BODIES)
def test_a_body_takes_exactly_the_fields_that_the_door_knows(name: str) -> None:
    shape = DOCUMENT["components"]["schemas"][name]
    assert shape["properties"].keys() == BODIES[name]
    assert shape["additionalProperties"] is False


def test_the_parameters_of_a_list_are_those_of_a_search_that_make_sense_there() -> None:
    assert questions.VISIBLE_FIELDS | {"limit", "cursor"} == memories.LIST_PARAMETERS


def classes(family: type[GnomonError] = GnomonError) -> Iterator[type[GnomonError]]:
    for cls in family.__subclasses__():
        if not cls.__module__.startswith("tests."):
            yield cls
            yield from classes(cls)


def rows(page: str) -> dict[str, list[str]]:
    """Return the rows of a page's tables by their first cell."""
    cells = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in (REFERENCE / page).read_text().splitlines()
        if line.startswith("| `")
    ]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_every_error_code_has_its_row_with_its_status() -> None:
    """Every class has a code of its own, a hint, and a row in docs/reference/errors.md."""
    listed = rows("errors.md")
    known = {cls.code: cls for cls in classes() if cls.__name__ not in FAMILIES}
    assert listed.keys() == known.keys()
    for code, cls in known.items():
        assert cls.hint, code
        assert listed[code][0] == str(cls.status), code


def test_no_two_errors_share_a_code() -> None:
    codes = [cls.code for cls in classes()]
    assert sorted(set(codes)) == sorted(codes)


def test_the_page_on_the_api_lists_every_route_with_its_right() -> None:
    written = {}
    for line in (REFERENCE / "http-api.md").read_text().splitlines():
        if match := re.match(r"\| `([A-Z]+) (/\S*)` \| (\S+) \|", line):
            written[match[1], match[2]] = match[3]
    rights = {
        (r.method, r.path): r.rule.right.value if r.rule.right is not None else NOBODY
        for r in ROUTES
    }
    beside = {("GET", "/healthz"): NOBODY, ("GET", "/openapi.json"): NOBODY}
    assert written == rights | beside


def test_the_page_on_telemetry_lists_every_metric_with_its_kind_and_labels() -> None:
    ours = {name: one for name, one in told(filled()).items() if name.startswith("gnomon_")}
    written = {
        name: (row[0], frozenset(re.findall("`([a-z]+)`", row[1])))
        for name, row in rows("telemetry.md").items()
        if name.startswith("gnomon_")
    }
    assert written == {name: (one.kind, one.labels) for name, one in ours.items()}


def test_a_problem_says_what_a_caller_can_act_on() -> None:
    conflict = problems.document(VersionConflictError(1, 4))
    assert conflict["code"] == "version_conflict"
    assert (conflict["status"], conflict["expected"], conflict["current"]) == (409, 1, 4)
    assert conflict["type"] == "urn:gnomon:error:version_conflict"


def test_what_passes_is_answered_with_when_to_come_again() -> None:
    answer = problems.response(OverloadedError("busy"))
    assert isinstance(OverloadedError("busy"), TransientError)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


def test_a_number_that_was_put_into_metadata_by_hand_spoils_no_answer() -> None:
    """S-04, P12: JSON has no bound for whole numbers, the fast writer has."""
    written = rendering.dumps({"n": 10**30, "at": None})
    assert json.loads(written) == {"n": 10**30, "at": None}
