"""What the terms of a text are."""
# ruff: noqa: RUF001 - signs that look alike are the point

import hashlib
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projectors.keyword import analysis
from projectors.keyword.analysis import (
    MAX_QUERY_TERMS,
    MAX_TERM,
    MAX_TERMS,
    query_terms,
    terms,
)
from projectors.keyword.folding import classes, fold

# Every string the door admits: no NUL, no lone surrogates.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
# Words and signs that lie close to each other in meaning and script, where rules meet.
MIXED = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *("don't", "Ann's", "TK-00042", "v2.3.1", "C++", "node.js", "3:15pm", "1,000"),
                *("a.b/c@d", "https://x.org/p?q=1", "Zürich", "straße", "ﬁne", "９ｒ", "１２"),
                *("我喜欢", "绿茶", "設定は", "サーバー", "고양이를", "ดื่มชา", "🙂", "नमस्ते"),
            ]
        ),
        st.text(st.sampled_from("aé1-.'/:@_,+#茶の고ช\u0e34\u0301 \u200b"), max_size=8),
    ),
    max_size=8,
).map("".join)
ANY = TEXTS | MIXED


@pytest.mark.parametrize(
    ("text", "some"),
    [
        (
            "User's ticket TK-00042 at 3:15pm",
            ["user", "ticket", "tk-00042", "tk", "00042", "3:15pm"],
        ),
        ("C++ and node.js, not C#.", ["c++", "c", "node.js", "node", "js", "c#"]),
        (
            "write to ann.lee@example.org",
            ["ann.lee@example.org", "ann.lee", "example.org", "ann", "lee"],
        ),
        ("release v2.3.1.", ["v2.3.1", "2.3.1"]),
        ("BATCH-7730412", ["batch-7730412", "7730412"]),
        (
            "see /etc/app.conf and C:\\Users\\x",
            ["etc/app.conf", "app.conf", "c:\\users\\x", "user"],
        ),
        ("cost 1,000,000", ["1000000"]),
        ("wi-fi", ["wifi", "wi", "fi"]),
    ],
)
def test_codes_and_addresses_keep_a_whole_form_and_their_parts(text: str, some: list[str]) -> None:
    """Q-12."""
    assert set(some) <= set(terms(text))
    assert set(some) <= set(query_terms(text))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("running quickly", "runs quick"),
        ("ＦＵＬＬ ９９", "full 99"),
        ("cafe\u0301 Zürich", "Café ZURICH"),
        ("straße", "STRASSE"),
        ("ｶﾞｲﾄﾞ", "ガイド"),
        ("\u1112\u1161\u11ab", "한"),
        ("don’t", "don't"),
        ("Ann’s", "ann"),
        ("co\u00adoperate", "cooperate"),
        ("e-mail", "email"),
        ("v2.3.1", "2.3.1"),
        ("٣٤", "34"),
        ("مُحَمَّد", "محمد"),
        ("1,000", "1000"),
    ],
)
def test_spellings_of_the_same_meet(one: str, other: str) -> None:
    assert set(query_terms(other)) <= set(terms(one))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9router の設定は GOALS.md", ["9router", "の設", "設定", "定は", "goals.md"]),
        ("使用node.js配置", ["使用", "node.js", "配置"]),
        ("茶", ["茶"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("고양이를", ["고양", "양이", "이를"]),
        ("ชาเขียว", ["ชา", "าเ", "เขี", "ขีย", "ยว"]),
    ],
)
def test_runs_are_asked_by_pairs_and_words_inside_stay_whole(
    text: str, expected: list[str]
) -> None:
    """Q-06."""
    asked = query_terms(text)
    assert [term for term in asked if term in expected] == expected


@pytest.mark.parametrize(
    "text", ["???", "！！", "的", "\t", "", "🙂", "🙂👍🏽", "—", "的 。 は", "\u200b", "\u0301"]
)
def test_a_query_without_words_asks_for_nothing(text: str) -> None:
    """Q-11."""
    assert query_terms(text) == []


def test_stop_words_are_not_asked_for_unless_there_is_nothing_else() -> None:
    assert query_terms("where did the cat go") == ["cat", "go"]
    assert query_terms("To be or not to be?") == ["to", "be", "or", "not"]
    assert {"where", "did", "the"} <= set(terms("where did the cat go"))


def test_a_long_text_and_a_long_word_are_bounded() -> None:
    """Q-11."""
    assert len(terms("word " * (MAX_TERMS + 9))) == MAX_TERMS
    assert len(query_terms(" ".join(map(str, range(1000))))) == MAX_QUERY_TERMS
    (long,), (longer,) = query_terms("a" * 10_000), query_terms("a" * 10_001)
    assert len(long) == len(longer) == MAX_TERM
    assert long != longer


@pytest.mark.parametrize("sign", ["a'", "a-", "a's'", "1,", "a.", "'s", "茶", "\u0301", "://", "+"])
def test_a_megabyte_of_anything_is_no_trouble(sign: str) -> None:
    """Q-11: linear, and no recursion."""
    assert all(len(term) <= MAX_TERM for term in terms(sign * (1 << 20 >> 2)))


@given(ANY)
def test_terms_are_bounded_and_hold_no_white_space(text: str) -> None:
    for term in [*terms(text), *query_terms(text)]:
        assert term
        assert len(term) <= MAX_TERM
        assert term.split() == [term]
        assert not any(unicodedata.category(sign) in {"Cc", "Zs", "Zl", "Zp"} for sign in term)


@given(ANY, ANY, ANY)
def test_what_is_asked_is_in_every_text_around_it(before: str, text: str, after: str) -> None:
    """Q-06: cut at white space, a query's terms are terms of the whole."""
    assert set(query_terms(text)) <= set(terms(f"{before} {text} {after}"))


@given(st.text(st.sampled_from("我喜欢喝绿茶東京タワーの고양이"), min_size=1), st.data())
def test_every_part_of_a_run_finds_it(run: str, data: st.DataObject) -> None:
    """Q-06: also a single sign."""
    start = data.draw(st.integers(0, len(run) - 1))
    end = data.draw(st.integers(start + 1, len(run)))
    assert set(query_terms(run[start:end])) <= set(terms(run))


@given(ANY)
def test_folding_twice_changes_nothing(text: str) -> None:
    folded = fold(text)
    assert fold(folded) == folded
    assert len(classes(folded)) == len(folded)


@given(ANY)
def test_spelling_and_case_do_not_matter(text: str) -> None:
    folded = terms(text)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert terms(unicodedata.normalize(form, text)) == folded
    assert terms(fold(text)) == folded


@given(ANY)
def test_the_terms_of_a_text_are_those_of_its_pieces(text: str) -> None:
    """What is remembered by piece is what is read in one go."""
    assert terms(text) == [term for piece in fold(text).split() for term in terms(piece)]


def test_threads_do_not_disturb_each_other_s_stems() -> None:
    """The stemmer keeps the word at hand in itself."""
    words = [f"{a}{b}{c}ings" for a in "bcdfgh" for b in "aeiou" for c in "lmnprst"]
    start = Barrier(4)

    def stems(rotation: int) -> dict[str, str]:
        start.wait(timeout=10)
        turned = words[rotation:] + words[:rotation]
        return {word: analysis._stem(word) for word in turned}

    analysis._stem_cached.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(stems, (0, 50, 100, 150)))
    analysis._stem_cached.cache_clear()
    assert all(answer == {word: analysis._stem(word) for word in words} for answer in found)


def test_another_analysis_has_another_name() -> None:
    """A change here means an index made before no longer fits: raise ANALYSIS, then this."""
    sample = [
        "The quick brown foxes' jumping, isn't it? I'd say so. TK-00042 v2.3.1 C++ node.js",
        "ann.lee@example.org https://example.org/a_b/install.sh C:\\Users\\x 3:15pm 1,000",
        "我们上次选的 embedding 向量是什么模型 9router の設定は GOALS.md を見る ｶﾞｲﾄﾞ",
        "고양이를 좋아해요 ฉันชอบดื่มชาเขียว नमस्ते दुनिया مُحَمَّد Привет Zürich",
    ]
    found = "\n".join(" ".join(terms(text)) + "|" + " ".join(query_terms(text)) for text in sample)
    digest = hashlib.sha256(found.encode()).hexdigest()[:16]
    assert (analysis.ANALYSIS, digest) == ("1+snowball-3.1.1", "6cc51a569a1fe923")
