"""Ids of records: in order of time, and read in one spelling only."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import RFC_4122, UUID

import pytest

from canonical.domain.clock import SystemClock
from canonical.domain.ids import new_id, parse_id
from canonical.errors import InvalidInputError

ID = UUID("0190163d-8694-739b-aea5-966c26f8ad91")


def test_an_id_is_a_uuid_of_version_7() -> None:
    for _ in range(1_000):
        made = new_id()
        assert (made.version, made.variant) == (7, RFC_4122)


def test_an_id_tells_its_time() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    after = time.time_ns() // 1_000_000
    assert before <= made.int >> 80 <= after


def test_ids_of_one_process_sort_by_time() -> None:
    """Apart by more than the quarter of a microsecond that an id can tell."""
    made = []
    for _ in range(1_000):
        made.append(new_id())
        started = time.perf_counter_ns()
        while time.perf_counter_ns() - started < 1_000:
            pass
    assert made == sorted(made)


def test_no_two_ids_are_equal() -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: new_id(), range(20_000)))
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("raw", [ID, str(ID), str(ID).upper()])
def test_an_id_is_read_as_it_was_given_out(raw: object) -> None:
    assert parse_id(raw) == ID


@pytest.mark.parametrize(
    "raw",
    [
        *(None, 7, [], "", "1", "*", ID.hex, f"{{{ID}}}", f"urn:uuid:{ID}", f" {ID}", f"{ID}\n"),
        *("{}{}" + ID.hex, str(ID).replace("1", "g"), str(ID).replace("0", "_"), "\ud83d" * 36),
        *(str(ID).replace("-", "0"), "\u0660" * 8 + str(ID)[8:], str(ID).replace("0", "+")),
    ],
)
def test_another_spelling_is_refused(raw: object) -> None:
    """S-08: one record, one address."""
    with pytest.raises(InvalidInputError) as caught:
        parse_id(raw)
    assert caught.value.field == "id"


def test_the_systems_clock_is_aware_and_in_utc() -> None:
    now = SystemClock().now()
    assert now.utcoffset() == timedelta(0)
    assert abs(now.timestamp() - time.time()) < 5
