"""Commands as callers send them: what is checked, what is capped, when two bodies are the same."""

from datetime import UTC, datetime
from typing import Any

import pytest

from canonical.domain import commands, door
from canonical.domain.commands import NO_PROVENANCE, UNSET, Caller, Change
from canonical.domain.door import LIMITS
from canonical.domain.records import Kind, Provenance, Trust
from canonical.domain.scope import Scope
from canonical.errors import InvalidInputError, TooLargeError
from tests.support.builders import CALLER, key, new

WHOLE = {
    "text": "Mara swims",
    "user_id": "alice",
    "agent_id": "a1",
    "run_id": "r1",
    "actor_id": "bob",
    "role": "user",
    "attributed_to": "user",
    "metadata": {"k": [1]},
    "valid_from": "2026-01-01T00:00:00Z",
    "valid_to": "2026-02-01T00:00:00Z",
    "expires_at": "2027-01-01T00:00:00Z",
    "source_message_ids": ["m1", "m2"],
    "source_role": "user",
    "source_trust": "tool",
    "event_id": "e1",
    "event_part": 3,
}


def refused(raw: object) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        commands.new_memory(raw, CALLER)
    return caught.value


def test_a_whole_memory_is_read_as_it_was_sent() -> None:
    read = commands.new_memory(dict(WHOLE), CALLER)
    assert read.scope == Scope("t1", "alice", "a1", "r1")
    assert (read.text, read.metadata, read.kind) == ("Mara swims", {"k": [1]}, Kind.RAW)
    assert (read.actor_id, read.role, read.attributed_to) == ("bob", "user", "user")
    assert read.valid_from == datetime(2026, 1, 1, tzinfo=UTC)
    assert read.valid_to == datetime(2026, 2, 1, tzinfo=UTC)
    assert read.expires_at == datetime(2027, 1, 1, tzinfo=UTC)
    assert read.provenance == Provenance(
        source_message_ids=("m1", "m2"),
        source_role="user",
        source_trust=Trust.TOOL,
        event_id="e1",
        event_part=3,
    )


def test_the_least_memory_is_a_text_and_a_scope() -> None:
    read = commands.new_memory({"text": "x", "run_id": "r"}, CALLER)
    assert (read.metadata, read.provenance) == ({}, NO_PROVENANCE)
    assert (read.valid_from, read.valid_to, read.expires_at) == (None, None, None)


@pytest.mark.parametrize("name", sorted(commands.NEW_FIELDS - {"event_part", "text", "metadata"}))
def test_every_field_but_the_text_may_be_left_out_or_null(name: str) -> None:
    raw = {**WHOLE, name: None}
    if name == "event_id":
        raw["event_part"] = None
    commands.new_memory(raw, CALLER)


@pytest.mark.parametrize("name", sorted(commands.NEW_FIELDS))
@pytest.mark.parametrize("value", ["\ud83d", "a\x00", [["*"]], {"like": "%"}, 7.5])
def test_every_field_is_checked_and_named(name: str, value: object) -> None:
    """S-01, W-08, W-09: a new field without its check fails here."""
    if name == "metadata" and isinstance(value, dict):
        value = {"k": "\ud83d"}
    said = refused({**WHOLE, name: value})
    assert said.field.startswith(name)
    str(said).encode()


@pytest.mark.parametrize("name", ["tenant", "id", "version", "kind", "status", "legal_hold", "fi"])
def test_a_field_that_a_caller_cannot_set_is_refused(name: str) -> None:
    """S-03, S-09, S-14: also one that the record has."""
    assert refused({**WHOLE, name: "x"}).field == name


def test_the_tenant_is_the_callers() -> None:
    assert commands.new_memory(dict(WHOLE), Caller("t9")).scope.tenant == "t9"


@pytest.mark.parametrize(
    ("start", "end"), [("2026-01-01", "2026-01-01"), ("2026-01-02", "2026-01-01")]
)
def test_a_fact_cannot_end_before_it_begins(start: str, end: str) -> None:
    times = {"valid_from": f"{start}T00:00:00Z", "valid_to": f"{end}T00:00:00Z"}
    assert refused({**WHOLE, **times}).field == "valid_to"


@pytest.mark.parametrize("value", ["system", "USER", "", 1, True])
def test_an_attribution_is_user_or_assistant(value: object) -> None:
    assert refused({**WHOLE, "attributed_to": value}).field == "attributed_to"


class TestProvenance:
    @pytest.mark.parametrize("cap", Trust)
    @pytest.mark.parametrize("asked", Trust)
    def test_trust_is_capped_by_the_callers(self, cap: Trust, asked: Trust) -> None:
        order = [Trust.EXTERNAL, Trust.TOOL, Trust.ASSISTANT, Trust.USER]
        read = commands.new_memory({**WHOLE, "source_trust": asked}, Caller("t1", max_trust=cap))
        held = read.provenance.source_trust
        assert held == order[min(order.index(cap), order.index(asked))]

    @pytest.mark.parametrize("value", ["root", "", 3, True, ["user"]])
    def test_an_unknown_trust_is_refused(self, value: object) -> None:
        assert refused({**WHOLE, "source_trust": value}).field == "source_trust"

    @pytest.mark.parametrize("value", [-1, 2**31, "0", 1.0, True])
    def test_a_part_is_a_whole_number(self, value: object) -> None:
        assert refused({**WHOLE, "event_part": value}).field == "event_part"

    def test_a_part_stands_with_its_event(self) -> None:
        raw = {name: value for name, value in WHOLE.items() if name != "event_id"}
        assert refused(raw).field == "event_part"

    def test_the_first_part_is_0(self) -> None:
        raw = {name: value for name, value in WHOLE.items() if name != "event_part"}
        assert commands.new_memory(raw, CALLER).provenance.event_part == 0

    @pytest.mark.parametrize("value", ["m1", {"m": 1}, ["m"] * (LIMITS.source_messages + 1)])
    def test_source_messages_are_a_bounded_list(self, value: object) -> None:
        assert refused({**WHOLE, "source_message_ids": value}).field == "source_message_ids"

    def test_the_bad_one_of_the_source_messages_is_named(self) -> None:
        said = refused({**WHOLE, "source_message_ids": ["m1", ""]})
        assert said.field == "source_message_ids[1]"


class TestChanges:
    def test_what_is_not_named_stays_unset(self) -> None:
        """L-15."""
        read = commands.change({"text": "new"})
        assert read == Change(text="new")
        assert {read.metadata, read.valid_from, read.valid_to, read.expires_at} == {UNSET}

    def test_null_clears_what_may_be_missing(self) -> None:
        raw = {"metadata": None, "valid_from": None, "valid_to": None, "expires_at": None}
        assert commands.change(raw) == Change(UNSET, {}, None, None, None)

    @pytest.mark.parametrize("raw", [{}, {"user_id": "bob"}, {"text": "x", "run_id": None}, []])
    def test_a_scope_never_changes(self, raw: object) -> None:
        """S-03: nor does a change of nothing pass."""
        with pytest.raises(InvalidInputError):
            commands.change(raw)

    @pytest.mark.parametrize("value", ["", "  ", "\u200b", None, 42, "a\x00", "\udc00"])
    def test_a_text_is_checked_as_in_an_add(self, value: object) -> None:
        """W-08, W-09, W-15."""
        with pytest.raises(InvalidInputError) as caught:
            commands.change({"text": value})
        assert caught.value.field == "text"

    @pytest.mark.parametrize("metadata", [{"user_id": "bob"}, {"created_at": 1}, {"k": "\ud83d"}])
    def test_metadata_is_checked_as_in_an_add(self, metadata: dict[str, Any]) -> None:
        """S-03, S-04."""
        with pytest.raises(InvalidInputError):
            commands.change({"metadata": metadata})

    def test_a_text_over_its_bound_is_413(self) -> None:
        """W-13."""
        with pytest.raises(TooLargeError):
            commands.change({"text": "a" * (LIMITS.text_bytes + 1)})

    @pytest.mark.parametrize("name", commands.TIME_FIELDS)
    def test_times_are_checked_as_in_an_add(self, name: str) -> None:
        """L-09."""
        assert commands.change({name: "2026-01-01T00:00:00Z"}) == Change(
            **{name: datetime(2026, 1, 1, tzinfo=UTC)}  # type: ignore[arg-type]
        )
        with pytest.raises(InvalidInputError):
            commands.change({name: "2026-01-01"})


class TestKeys:
    def test_a_command_without_a_key_has_none(self) -> None:
        assert commands.mutation_key(None, "add", {}) is None

    @pytest.mark.parametrize("value", ["", " m", "*", 7, [], "m" * 257, "\ud83d"])
    def test_a_key_is_an_id(self, value: object) -> None:
        with pytest.raises(InvalidInputError) as caught:
            commands.mutation_key(value, "add", {})
        assert caught.value.field == "mutation_id"

    def test_the_order_of_keys_does_not_make_another_body(self) -> None:
        one = key("m", "add", {"text": "x", "metadata": {"a": 1, "b": [1, 2]}})
        assert one == key("m", "add", {"metadata": {"b": [1, 2], "a": 1}, "text": "x"})

    @pytest.mark.parametrize(
        "body",
        [
            *({}, {"text": "likes coffee"}, {"text": "likes tea", "metadata": {"a": 1}}),
            *({"text": "likes tea "}, ["likes tea"], {"Text": "likes tea"}),
        ],
    )
    def test_another_body_has_another_hash(self, body: object) -> None:
        """W-02."""
        assert key("m", "add", body) != key("m", "add", {"text": "likes tea"})


def test_a_builder_goes_through_the_door() -> None:
    with pytest.raises(InvalidInputError):
        new("x", user_id="*")


def test_limits_are_passed_down() -> None:
    tight = door.Limits(
        text_bytes=4, metadata_bytes=8, metadata_depth=1, id_chars=2, source_messages=1
    )
    for raw in (
        {"text": "12345", "user_id": "a"},
        {"text": "1", "user_id": "abc"},
        {"text": "1", "user_id": "a", "metadata": {"k": "12345678"}},
        {"text": "1", "user_id": "a", "metadata": {"k": []}},
        {"text": "1", "user_id": "a", "source_message_ids": ["a", "b"]},
        {"text": "1", "user_id": "a", "source_message_ids": ["abc"]},
        {"text": "1", "user_id": "a", "event_id": "abc"},
        {"text": "1", "user_id": "a", "actor_id": "abc"},
        {"text": "1", "user_id": "a", "role": "abc"},
        {"text": "1", "user_id": "a", "source_role": "abc"},
    ):
        commands.new_memory(raw, CALLER)
        with pytest.raises((InvalidInputError, TooLargeError)):
            commands.new_memory(raw, CALLER, tight)
    changes: list[dict[str, Any]] = [{"text": "12345"}, {"metadata": {"k": []}}]
    for change in changes:
        with pytest.raises((InvalidInputError, TooLargeError)):
            commands.change(change, tight)
    with pytest.raises(InvalidInputError):
        commands.mutation_key("abc", "add", {}, tight)
