"""What every embedder promises, whoever makes the vectors."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference.fakes import HashEmbedder
from inference.local import WordLlamaEmbedder
from inference.openai_compatible import Endpoint, OpenAICompatibleEmbedder
from inference.protocols import Embedder, Vectors
from tests.support import embedding_server

STRANGE = [
    "",
    " \n\t ",
    "的",
    "。",
    "\u200b\u200d\ufeff",
    "\x00",
    "🎈🎈🎉",
    "我喜欢喝绿茶",
    "昨日は東京で友達に会いました",
    "ذهبت مريم إلى القاهرة",
    "สวัสดีครับ",
    "x" * 65_536,
    "绿茶" * 10_000,
    "A\u0301\u0302 " * 500,
]


@contextmanager
def wordllama() -> Iterator[Embedder]:
    yield WordLlamaEmbedder()


@contextmanager
def hashes() -> Iterator[Embedder]:
    yield HashEmbedder()


@contextmanager
def endpoint() -> Iterator[Embedder]:
    with embedding_server.running() as server:
        made = OpenAICompatibleEmbedder(
            Endpoint(base_url=server.address, model="test", unrelated=0.25)
        )
        yield made
        made.close()


@pytest.fixture(
    scope="module", params=[wordllama, hashes, endpoint], ids=lambda make: make.__name__
)
def embedder(request: pytest.FixtureRequest) -> Iterator[Embedder]:
    make: Callable[[], AbstractContextManager[Embedder]] = request.param
    with make() as made:
        yield made


def vectors(embedder: Embedder, *texts: str) -> Vectors:
    answers = embedder.embed(texts)
    assert len(answers) == len(texts)
    found = [answer for answer in answers if isinstance(answer, np.ndarray)]
    assert len(found) == len(texts), answers
    return np.stack(found)


def test_no_texts_have_no_answers(embedder: Embedder) -> None:
    assert embedder.embed([]) == []


@pytest.mark.parametrize("text", STRANGE, ids=lambda text: ascii(text[:12]))
def test_any_text_has_a_vector_of_length_one(embedder: Embedder, text: str) -> None:
    """E-08: nothing is refused for its length or its script, and nothing gives NaN."""
    (vector,) = vectors(embedder, text)
    assert vector.shape == (embedder.dimension,)
    assert vector.dtype == np.float32
    assert float(np.linalg.norm(vector)) == pytest.approx(1, abs=1e-5)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
@given(texts=st.lists(st.text(max_size=40), max_size=5))
def test_vectors_have_length_one_whatever_the_texts(embedder: Embedder, texts: list[str]) -> None:
    for vector in embedder.embed(texts):
        assert isinstance(vector, np.ndarray)
        assert float(np.linalg.norm(vector)) == pytest.approx(1, abs=1e-5)


def test_a_text_has_the_same_vector_in_any_company(embedder: Embedder) -> None:
    texts = [f"note {n} on {'tea' if n % 2 else 'the weather in Oslo'}" for n in range(300)]
    together = vectors(embedder, *texts)
    for n in (0, 1, 150, 299):
        np.testing.assert_allclose(together[n], vectors(embedder, texts[n])[0], atol=1e-5)


def test_what_is_about_the_same_is_nearer_than_the_unrelated(embedder: Embedder) -> None:
    """Q-14: the order of cosines is that of meaning, and `unrelated` lies between the two."""
    pairs = [
        ("she drinks green tea every morning", "green tea in the morning", "stocks fell sharply"),
        ("我喜欢喝绿茶", "绿茶", "机器学习算法"),
    ]
    for stored, asked, other in pairs:
        near, far = vectors(embedder, stored, other) @ vectors(embedder, asked)[0]
        assert near > far
        assert near > embedder.unrelated > far


def test_threads_may_share_one(embedder: Embedder) -> None:
    texts = [f"thread safety {n}" for n in range(40)]
    alone = vectors(embedder, *texts)
    with ThreadPoolExecutor(4) as pool:
        for n, found in enumerate(pool.map(lambda text: vectors(embedder, text)[0], texts)):
            np.testing.assert_allclose(found, alone[n], atol=1e-5)
