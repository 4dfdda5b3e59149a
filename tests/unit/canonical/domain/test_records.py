"""What engines compare, and how a place is named in a refusal."""

import itertools

import pytest

from canonical.domain import places
from canonical.domain.records import guard


def test_a_later_epoch_wins_over_any_rev() -> None:
    """P3, P13: and inside an epoch the higher rev."""
    revs = [1, 2, 2**31, 2**40 - 1]
    guards = [guard(epoch, rev) for epoch, rev in itertools.product([1, 2, 1000], revs)]
    assert guards == sorted(set(guards))


def test_a_guard_fits_a_signed_long() -> None:
    assert guard(2**23 - 1, 2**40 - 1) == 2**63 - 1


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("k", "body.k"),
        ("用户 1", "body.用户 1"),
        ("\ud83d", "body.\\ud83d"),
        ("a\x00\x1b[31m", "body.a\\x00\\x1b[31m"),
        ("\u202e", "body.\\u202e"),
        ("k" * 41, "body." + "k" * 40 + "…"),
    ],
)
def test_a_callers_key_is_shown_so_that_it_does_no_harm(key: str, said: str) -> None:
    """W-08, W-09."""
    assert places.inside("body", key) == said
