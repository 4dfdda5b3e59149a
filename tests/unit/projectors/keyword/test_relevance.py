"""How well words fit: laws of BM25 and of coverage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projectors.keyword.analysis import query_terms, terms
from projectors.keyword.relevance import Statistics, bm25, coverage, idf, kept_length, weight

WORDS = st.lists(st.sampled_from(["tea", "oolong", "tk-00042", "绿茶", "7", "green"]), max_size=8)


def covered(query: str, text: str) -> float:
    return coverage(query_terms(query), terms(text))


@given(WORDS, WORDS)
def test_coverage_is_a_share(asked: list[str], held: list[str]) -> None:
    share = coverage(asked, held)
    assert 0 <= share <= 1
    assert (share == 1) == (bool(asked) and set(asked) <= set(held))
    assert (share == 0) == (not set(asked) & set(held))
    assert coverage(asked, [*held, "more"]) == share


def test_a_code_outweighs_the_words_around_it() -> None:
    """Q-12: a threshold of a half keeps the exact code and drops its neighbour."""
    assert covered("ticket TK-00042", "closed TK-00042 today") > 0.5
    assert covered("ticket TK-00042", "ticket TK-00043 closed") < 0.5
    assert covered("TK-00042", "TK-00043") < 0.2
    assert weight("tk-00042") > weight("extraordinary") > weight("tea") > weight("a")


def test_a_text_about_something_else_is_not_covered() -> None:
    assert covered("what does the user like to eat", "the server restarts at night") == 0
    assert covered("绿茶", "红茶很好喝") == 0


@pytest.mark.parametrize(
    ("length", "kept"), [(0, 0), (23, 23), (40, 40), (41, 40), (42, 42), (57, 56), (1000, 984)]
)
def test_lengths_are_kept_as_in_one_byte(length: int, kept: int) -> None:
    assert kept_length(length) == kept


@given(st.integers(0, 10**6))
def test_a_kept_length_is_never_longer_and_close(length: int) -> None:
    kept = kept_length(length)
    assert kept <= length
    assert length - kept <= max(length - 24, 0) / 8
    assert kept_length(kept) == kept


@given(st.integers(1, 10**6), st.data())
def test_rarer_words_weigh_more(n_docs: int, data: st.DataObject) -> None:
    df = data.draw(st.integers(0, n_docs - 1))
    assert idf(n_docs, df) > idf(n_docs, df + 1) > 0
    assert idf(n_docs, n_docs + 5) > 0  # the index still counts what it has not merged away


def test_bm25_of_no_common_word_is_zero_and_repeats_in_a_query_count_once() -> None:
    statistics = Statistics(n_docs=10, df={"tea": 2}, avg_len=3.0)
    assert bm25(["tea"], ["coffee"], statistics) == 0
    assert bm25(["tea", "tea"], ["tea", "x"], statistics) == bm25(["tea"], ["tea", "x"], statistics)
    assert bm25(["new"], ["new"], statistics) > bm25(["tea"], ["tea"], statistics)
    assert bm25(["tea"], ["tea"], Statistics(0, {}, 0.0)) > 0  # an empty index
