"""What every recogniser promises, whoever finds the names."""

from collections.abc import Iterator

import pytest

from inference.fake_recogniser import FakeRecogniser
from inference.names import LABELS, MAX_CHARS
from inference.protocols import Name, Recogniser
from inference.spacy_recogniser import SpacyRecogniser

FACT = "Mara Lind moved to Lisbon and works for Acme Corp there."
STRANGE = [
    "",
    " \n\t ",
    "我昨天和小明去了上海的迪士尼乐园",
    "昨日は東京で友達に会いました",
    "ذهبت مريم إلى القاهرة",
    "🎈🎈🎉",
    "\u200b\u200d\ufeff",
    "x" * 65_536,
    "Mara " * 13_000,
    "A\u0301\u0302 " * 500,
]


@pytest.fixture(scope="module", params=[FakeRecogniser, SpacyRecogniser], ids=lambda c: c.__name__)
def recogniser(request: pytest.FixtureRequest) -> Iterator[Recogniser]:
    made = request.param()
    yield made
    if isinstance(made, SpacyRecogniser):
        made.close()


def found(recogniser: Recogniser, *texts: str) -> list[tuple[Name, ...]]:
    answers = recogniser.recognise(texts)
    assert len(answers) == len(texts)
    names: list[tuple[Name, ...]] = []
    for answer in answers:
        assert isinstance(answer, tuple), answer
        names.append(answer)
    return names


def test_people_and_places_are_found_in_order(recogniser: Recogniser) -> None:
    (names,) = found(recogniser, FACT)
    texts = [name.text for name in names]
    assert texts[:2] == ["Mara Lind", "Lisbon"]
    assert "Acme Corp" in texts


def test_no_texts_have_no_answers(recogniser: Recogniser) -> None:
    assert found(recogniser) == []


def test_answers_belong_to_their_texts(recogniser: Recogniser) -> None:
    texts = [FACT if n % 3 else "nothing here" for n in range(300)]
    assert found(recogniser, *texts) == [found(recogniser, t)[0] for t in texts[:3]] * 100


@pytest.mark.parametrize("text", STRANGE, ids=lambda t: ascii(t[:10]))
def test_a_strange_text_neither_breaks_nor_disturbs_its_neighbours(
    recogniser: Recogniser, text: str
) -> None:
    """Q-20: Chinese, Japanese, Arabic, emoji only, and what no one would write."""
    alone = found(recogniser, FACT)[0]
    before, _, after = found(recogniser, FACT, text, FACT)
    assert before == after == alone


@pytest.mark.parametrize("text", STRANGE[:7], ids=lambda t: ascii(t[:10]))
def test_a_script_without_support_has_no_names(recogniser: Recogniser, text: str) -> None:
    """Q-20."""
    assert found(recogniser, text) == [()]


def test_names_are_bounded_and_of_known_kinds(recogniser: Recogniser) -> None:
    for names in found(recogniser, FACT, *STRANGE, "On May 3 he paid 40 dollars to 12 people"):
        for name in names:
            assert name.label in LABELS
            assert 2 <= len(name.text) <= MAX_CHARS
            assert name.text == " ".join(name.text.split())


def test_the_model_is_named_with_a_version(recogniser: Recogniser) -> None:
    assert any(c.isdigit() for c in recogniser.model)
    assert type(recogniser)().model == recogniser.model
