"""Names as they are compared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projectors.entity.names import (
    MAX_KEYS,
    MIN_NAME_CHARS,
    STOP,
    names_in,
    normalise,
    words_of,
)
from projectors.entity.schema import MAX_NAME_CHARS


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Acme", "acme"),
        (" ACME ", "acme"),
        ("acme", "acme"),
        ("Acme's", "acme"),
        ("Acme\u2019s", "acme"),
        ("the Joneses'", "joneses"),
        ("The The Hague", "hague"),
        ("Mara\n\t Lind", "mara lind"),
        ("(Acme Corp.)", "acme corp"),
        ("“Mara”", "mara"),
        ("U.S.", "u.s"),
        ("C++", "c++"),
        ("AC/DC", "ac/dc"),
        ("\uff2b\uff36\uff34\uff21", "kvta"),
        ("Stra\u00dfe", "strasse"),
        ("STRASSE", "strasse"),
        ("E\u0301milie", "émilie"),
        ("É\u00admilie", "émilie"),
        ("a", ""),
        ("The", "the"),
        ("42", ""),
        ("--", ""),
        ("", ""),
        ("x" * 101, ""),
        ("\ufdfa" * 30, ""),  # 18 characters each, once they are spelt out
    ],
)
def test_spellings_of_one_name_are_one_name(said: str, name: str) -> None:
    """O-16."""
    assert normalise(said) == name


@given(st.text(max_size=120))
def test_a_normal_form_is_its_own_normal_form(said: str) -> None:
    name = normalise(said)
    assert normalise(name) == name
    assert name == "" or MIN_NAME_CHARS <= len(name) <= MAX_NAME_CHARS


@given(st.text(max_size=40), st.sampled_from([str.upper, str.title, lambda s: f" “{s}”, "]))
def test_case_and_what_stands_around_a_name_make_no_difference(said: str, change: object) -> None:
    assert callable(change)
    plain = normalise(said)
    if plain and plain.isascii():
        assert normalise(change(plain)) == plain


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("What did mara lind say about Lisbon?", {"mara lind", "mara", "lind", "lisbon"}),
        ("is KVTA on?", {"kvta"}),
        ("Acme's new chair", {"acme", "new chair"}),
        ("the Bank of America", {"bank of america"}),
        ("我喜欢小明", {"小明", "喜欢"}),
        ("who works at the WHO", {"who"}),
        ("does Will know", {"will"}),
    ],
)
def test_the_names_of_a_query_are_among_its_runs(query: str, names: set[str]) -> None:
    assert names <= set(names_in(query))


@pytest.mark.parametrize("query", ["who is it", "Who is it", "what do i do", "", "🎈", "12 34"])
def test_words_that_are_no_names_are_not_looked_for(query: str) -> None:
    assert not {name for name in names_in(query) if " " not in name}


def test_what_a_query_says_is_bounded() -> None:
    long = " ".join(f"word{n}" for n in range(20_000))
    assert len(names_in(long)) == MAX_KEYS
    assert len(names_in("绿" * 20_000)) <= MAX_KEYS


@given(st.text(max_size=200))
def test_the_names_of_a_query_are_normal_and_distinct(query: str) -> None:
    names = names_in(query)
    assert len(set(names)) == len(names)
    assert all(normalise(name) == name != "" for name in names)


@given(st.lists(st.from_regex(r"[A-Z][a-z]{2,8}", fullmatch=True), min_size=1, max_size=4))
def test_a_name_of_up_to_four_words_is_found_in_a_query_that_says_it(words: list[str]) -> None:
    name = normalise(" ".join(words))
    assert name in names_in(f"tell me of {' '.join(words)}?") or name in STOP


def test_the_words_of_a_name_tell_something() -> None:
    assert words_of("bank of america") == ["bank", "america"]
    assert words_of("maria: yep") == ["maria", "yep"]
    assert words_of("new york new") == ["new", "york"]
