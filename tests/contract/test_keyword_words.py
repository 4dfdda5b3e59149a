"""What every keyword index finds by which words, and how it scores them."""
# ruff: noqa: RUF001 - signs that look alike are the point

from dataclasses import replace

import pytest

from canonical.domain.records import Status
from canonical.domain.scope import Scope
from projectors.keyword.analysis import query_terms, terms
from projectors.keyword.relevance import bm25
from tests.support.keyword_index import ENGINES, SPREAD, Corner, KeywordIndex, record

pytestmark = pytest.mark.parametrize(
    "keyword_index", [*ENGINES, SPREAD], indirect=True, scope="module"
)


@pytest.fixture
def index(keyword_index: KeywordIndex) -> KeywordIndex:
    return keyword_index


@pytest.fixture
def corner(index: KeywordIndex) -> Corner:
    return Corner(index)


CJK = {
    "我上周和小红去了杭州的西湖": ["杭州", "西湖", "小红", "杭", "我上周去了杭州"],
    "人工智能技术发展迅速": ["人工智能", "技术发展"],
    "机器学习算法": ["学习", "机器学习", "算法"],
    "外币汇率换算": ["汇率", "换算"],
    "每日复盘 cron 备份": ["cron 备份", "cron", "备份", "ＣＲＯＮ"],
    "多租户": ["租户", "多租户"],
    "9router の設定は GOALS.md を見る": [
        "9router",
        "GOALS.md",
        "設定",
        "goals.md",
        "９ｒｏｕｔｅｒ",
    ],
    "東京タワーへ行った": ["東京", "タワー", "ﾀﾜｰ", "東京タワー"],
    "고양이를 좋아해요": ["고양이", "고양이가"],
    "ฉันชอบดื่มชาเขียว": ["ชาเขียว"],
    "我喜欢喝绿茶": ["绿茶", "茶", "喜欢绿茶"],
}


@pytest.mark.parametrize("text", CJK)
def test_each_query_finds_its_record_first_by_words_alone(corner: Corner, text: str) -> None:
    """Q-06: among all the others."""
    made = {r.text: r.id for r in corner.add(*CJK)}
    for query in CJK[text]:
        assert corner.found(query)[:1] == [made[text]], query


def test_signs_that_are_not_neighbours_are_no_word(corner: Corner) -> None:
    """Q-06, Q-19: 习 and 学 of another word, in a shorter text, are not 学习."""
    (wanted, *_) = corner.add("机器学习算法是这样工作的", "复习数学", "学生在复习", "习惯上学")
    assert corner.found("学习") == [wanted.id]


def test_a_mixed_question_does_not_drown_in_single_signs(corner: Corner) -> None:
    """Q-19."""
    corner.add(*[f"我们的模型第{n}版已经上线，我们继续改进模型" for n in range(200)])
    (wanted,) = corner.add("我们选的 embedding 向量模型是 bge")
    assert corner.found("我们上次选的 embedding 向量是什么模型")[0] == wanted.id


PLAIN = [
    *("mcp", "C:\\Users\\x", "curl https://example.org/install.sh | bash", "a AND (b"),
    *('"unclosed', "title:foo", "foo~2^5", "-minus +plus", "[* TO *]", "/re.gex/", "a*b? c"),
    *("body:about", "about", "NOT tea", "tea OR coffee", "{}", "minus", "plus minus zero"),
]


def test_text_is_words_and_never_syntax(corner: Corner) -> None:
    """Q-09: no other record comes before the one with the same text; no operator takes effect."""
    made = {r.text: r.id for r in corner.add(*PLAIN)}
    for text, memory_id in made.items():
        hits = corner.find(text)
        first = [hit.memory_id for hit in hits if hit.score >= hits[0].score * (1 - 1e-6)]
        assert (memory_id in first) if query_terms(text) else not hits, text
    assert set(corner.found("-minus")) == set(corner.found("minus"))
    assert made["NOT tea"] in corner.found("tea")


def test_a_bare_backslash_and_brackets_find_nothing_and_raise_nothing(corner: Corner) -> None:
    """Q-09."""
    corner.add(*PLAIN)
    for query in ("\\", "{}", "[*]", '"', "*", "?", "~", "^", "&&", "||", "!"):
        assert corner.found(query) == []


@pytest.mark.parametrize("query", ["???", "！！", "的", "\t", "", "🙂", "a" * 10_000])
def test_a_query_without_words_finds_nothing(corner: Corner, query: str) -> None:
    """Q-11: never the whole scope."""
    corner.add("tea", "我的茶", "??? !!", "🙂")
    assert corner.found(query) == []
    assert corner.ask([]) == []
    assert corner.find("tea", limit=0) == []


CODES = {
    "User's ticket TK-00042 at 3:15pm": ["TK-00042", "tk-00042", "3:15pm", "3:15PM", "TK00042"],
    "User's ticket TK-00043 at 4:15pm": ["TK-00043"],
    "C++ and node.js": ["C++", "c++", "node.js", "Node.JS", "nodejs"],
    "write to ann.lee@example.org": ["ann.lee@example.org", "ANN.LEE@EXAMPLE.ORG", "ann.lee"],
    "release v2.3.1": ["v2.3.1", "2.3.1", "V2.3.1"],
    "release v2.3.2": ["v2.3.2"],
    "BATCH-7730412": ["BATCH-7730412", "batch-7730412", "7730412"],
    "C is older than C#": ["C#"],
    "part number ZX9QK": ["ZX9QK", "zx9qk"],
}


@pytest.mark.parametrize("text", CODES)
def test_a_code_finds_its_record_first(corner: Corner, text: str) -> None:
    """Q-12, Q-05: in any case, and never behind a neighbour's code."""
    made = {r.text: r.id for r in corner.add(*CODES)}
    corner.add(*[f"the user asked about ticket number {n} and part {n}" for n in range(80)])
    for query in CODES[text]:
        assert corner.found(query)[:1] == [made[text]], query


def test_stems_find_each_other(corner: Corner) -> None:
    (held,) = corner.add("She was running two marathons")
    corner.add("nothing of the kind")
    for query in ("runs", "marathon", "Run!", "running marathons"):
        assert corner.found(query) == [held.id]


# Scores


TEXTS = ["green tea", "tea tea tea", "green things in the garden of tea " * 5, "coffee", "茶と緑茶"]


@pytest.mark.parametrize("query", ["tea", "green tea", "tea garden coffee", "緑茶"])
def test_scores_are_those_of_the_pure_function(corner: Corner, query: str) -> None:
    """The tail is scored by it, on the same scale; among other tenants, deletes and updates."""
    made = corner.add(*TEXTS)
    elsewhere = Corner(corner.index)
    elsewhere.add(*["green tea and more green tea"] * 20)
    corner.apply(replace(made[3], rev=2, status=Status.DELETED), replace(made[0], rev=2))
    known = corner.index.reader.statistics(query_terms(query), tenant=corner.tenant)
    texts = {r.id: r.text for r in made}
    hits = corner.find(query)
    assert hits
    for hit in hits:
        expected = bm25(query_terms(query), terms(texts[hit.memory_id]), known)
        assert hit.score == pytest.approx(expected, rel=1e-4)


def test_what_other_tenants_write_does_not_weigh_words(corner: Corner) -> None:
    """A word that is rare here stays rare, and nobody learns how common it is elsewhere."""
    corner.add("heliotrope is the code word", "the code is not a word", "a third text of words")
    before = corner.index.reader.statistics(["heliotrop", "code"], tenant=corner.tenant)
    elsewhere = Corner(corner.index)
    elsewhere.add(*["heliotrope"] * 50)
    after = corner.index.reader.statistics(["heliotrop", "code"], tenant=corner.tenant)
    assert (after.n_docs, after.df) == (before.n_docs, before.df)
    assert after.df == {"heliotrop": 1, "code": 2}
    heliotrope, code = (corner.find(word)[0].score for word in ("heliotrope", "code"))
    assert heliotrope > 1.5 * code


def test_the_best_come_first_and_more_words_score_higher(corner: Corner) -> None:
    """Q-14."""
    made = corner.add("green tea", "green tea with a very long story about other things", "green")
    hits = corner.find("green tea")
    assert [hit.memory_id for hit in hits] == [r.id for r in made]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.score > 0 for hit in hits)
    assert [hit.memory_id for hit in corner.find("green tea", limit=1)] == [made[0].id]


def test_a_query_of_very_many_words_is_answered_by_the_rarest(corner: Corner) -> None:
    common = [f"word{n}" for n in range(300)]
    corner.add(*[" ".join(common)] * 3)
    rare = record(" ".join([*common, "zebra"]), Scope(corner.tenant, "alice"))
    corner.apply(rare)
    assert corner.ask([*common, "zebra"])[0].memory_id == rare.id
