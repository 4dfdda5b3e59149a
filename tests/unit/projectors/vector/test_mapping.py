"""What a point holds, and that moments and numbers keep their order on the way into an engine."""

import struct
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from canonical.domain.records import Record, Status, Tombstone, guard
from canonical.domain.scope import Scope
from canonical.errors import EngineMismatchError, EngineRefusedError
from projectors.protocol import Mark
from projectors.vector import mapping, schema
from projectors.vector.mapping import Upsert
from projectors.vector.schema import MAX_EXACT, Shape
from tests.support.vector_index import DIMENSION, NOW, record, vector_of

SCOPE = Scope("t", user_id="u", run_id="r")
FULL = record(
    "likes green tea",
    SCOPE,
    rev=3,
    metadata={"project": "atlas", "priority": 3},
    valid_from=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    tombstone=Tombstone(NOW, "someone", "because"),
)


def written(made: Record, **changes: Any) -> mapping.IndexWrite:
    arguments: dict[str, Any] = {"epoch": 1, "dimension": DIMENSION, **changes}
    vector = arguments.pop("vector", vector_of(made.text))
    return mapping.write_for(made, vector, **arguments)


def test_a_live_record_is_a_point_without_text_and_metadata() -> None:
    write = written(FULL, epoch=2)
    assert isinstance(write, Upsert)
    assert (write.memory_id, write.guard) == (FULL.id, guard(2, 3))
    assert dict(write.payload) | {"terms": (), "numbers": ()} == {
        "tenant": "t",
        "user_id": "u",
        "run_id": "r",
        "status": "active",
        "guard": 2 << 40 | 3,
        "valid_from": 1_000_000,
        "terms": (),
        "numbers": (),
    }
    assert (len(write.payload["terms"]), len(write.payload["numbers"])) == (4, 1)
    for word in ("tea", "atlas", "project", "priority"):
        assert word not in str(write.payload)


@pytest.mark.parametrize("status", [Status.DELETED, Status.ERASED])
def test_a_tombstone_holds_tenant_status_and_guard_only(status: Status) -> None:
    """E-02: and needs no vector."""
    write = written(replace(FULL, status=status), vector=None)
    assert isinstance(write, mapping.Tombstone)
    assert write.payload == {"tenant": "t", "status": status.value, "guard": guard(1, 3)}


def test_a_superseded_record_keeps_its_content() -> None:
    write = written(replace(FULL, status=Status.SUPERSEDED))
    assert isinstance(write, Upsert)
    assert write.payload["status"] == "superseded"


@pytest.mark.parametrize("vector", [None, np.ones(DIMENSION + 1, np.float32), vector_of("x") * 2])
def test_a_vector_of_another_shape_or_length_is_the_models_fault(vector: Any) -> None:
    """E-06: it halts, it doesn't park one record after the other."""
    with pytest.raises(EngineMismatchError):
        written(FULL, vector=vector)


def test_a_number_that_no_double_holds_is_the_records_fault() -> None:
    with pytest.raises(EngineRefusedError, match="too large"):
        written(replace(FULL, metadata={"n": 10**400}))


def test_a_guard_that_a_double_would_round_halts() -> None:
    written(FULL, epoch=(MAX_EXACT >> 40) - 1)
    with pytest.raises(EngineMismatchError, match="epoch"):
        written(FULL, epoch=MAX_EXACT >> 40)


MOMENTS = st.datetimes(timezones=st.just(UTC)) | st.builds(
    lambda micros: NOW + timedelta(microseconds=micros), st.integers(-3, 3)
)
EXACT_FROM = datetime(1684, 8, 1, tzinfo=UTC)
EXACT_TO = datetime(2255, 6, 1, tzinfo=UTC)


@given(held=MOMENTS, now=MOMENTS)
@example(held=datetime(1600, 1, 1, tzinfo=UTC), now=datetime(1500, 1, 1, tzinfo=UTC))
@example(held=datetime(2500, 1, 1, tzinfo=UTC), now=datetime(3000, 1, 1, tzinfo=UTC))
@example(held=datetime(3000, 1, 1, tzinfo=UTC), now=datetime(2500, 1, 1, tzinfo=UTC))
@example(held=datetime(1500, 1, 1, tzinfo=UTC), now=datetime(1600, 1, 1, tzinfo=UTC))
@example(held=NOW, now=NOW)
def test_cut_moments_never_hide_what_uncut_ones_show(held: datetime, now: datetime) -> None:
    """Q: and between 1684 and 2255 they show nothing more."""
    began, goes_on = (
        mapping.start(held) <= mapping.asked(now),
        mapping.asked(now) < mapping.end(held),
    )
    assert began or not held <= now
    assert goes_on or not now < held
    if EXACT_FROM < held < EXACT_TO and EXACT_FROM < now < EXACT_TO:
        assert (began, goes_on) == (held <= now, now < held)
    for number in (mapping.start(held), mapping.end(held), mapping.asked(now)):
        assert float(number) == number
        assert abs(number) <= MAX_EXACT


def test_a_moment_is_the_same_in_every_zone() -> None:
    east = timezone(timedelta(hours=9))
    assert mapping.start(NOW.astimezone(east)) == mapping.start(NOW)


DOUBLES = st.floats(allow_nan=False, allow_infinity=False)


@given(one=DOUBLES, other=DOUBLES)
@example(one=-0.0, other=0.0)
@example(one=5e-324, other=-5e-324)
def test_numbers_keep_their_order(one: float, other: float) -> None:
    """S-09: and nothing of their value, so that bounds are exact."""
    first, second = mapping.in_order(one), mapping.in_order(other)
    assert (first < second) == (one < other)
    assert (first == second) == (one == other)
    assert all(0 <= part < 1 << 32 for part in first)


@given(bits=st.integers(0, (1 << 64) - 1))
def test_every_double_has_a_place_of_its_own(bits: int) -> None:
    (value,) = struct.unpack(">d", struct.pack(">Q", bits))
    if value == value and abs(value) != float("inf"):  # noqa: PLR0124 - not a NaN
        high, low = mapping.in_order(value)
        following = np.nextafter(value, np.inf)
        assert following in (value, np.inf) or mapping.in_order(float(following)) > (high, low)


def mark(pos: int, *, shard: int = 0, epoch: int = 1) -> Mark:
    return Mark(shard, pos, UUID(int=pos), pos + 1, epoch)


def test_a_mark_comes_back_as_it_was() -> None:
    made = mark(7, shard=3, epoch=4)
    assert mapping.mark_of(3, mapping.mark_payload(made)) == made


def test_marks_move_forward_only() -> None:
    held = {0: mark(5), 1: mark(5, shard=1)}
    found = mapping.ahead(held, [mark(4), mark(9, shard=1), mark(7, shard=1), mark(1, shard=2)])
    assert found == {1: mark(9, shard=1), 2: mark(1, shard=2)}
    assert mapping.ahead(held, [mark(2, epoch=2)]) == {0: mark(2, epoch=2)}


def test_the_fingerprint_tells_shapes_apart() -> None:
    """E-06: model and dimension; a colon or a digit in a name doesn't blur them."""
    shapes = [Shape("m", 3), Shape("m", 33), Shape("3 m", 3), Shape("n", 3), Shape("m", 4)]
    assert len({shape.fingerprint() for shape in shapes}) == len(shapes)
    assert {field.name for field in fields(Shape)} == {"model", "dimension"}
    assert schema.GUARD not in schema.KEYWORDS + schema.MOMENTS
