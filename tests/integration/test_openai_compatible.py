"""What an endpoint's answers mean: one text, the endpoint, or the whole projection."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from canonical.errors import EngineMismatchError, ModelRefusedError, ModelUnavailableError
from inference.fakes import HashEmbedder
from inference.openai_compatible import Endpoint, OpenAICompatibleEmbedder
from tests.support import embedding_server
from tests.support.embedding_server import EmbeddingServer, Reply, error


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server.running() as state:
        yield state


Make = Callable[..., OpenAICompatibleEmbedder]


@pytest.fixture
def make(server: EmbeddingServer) -> Iterator[Make]:
    made: list[OpenAICompatibleEmbedder] = []

    def build(**settings: object) -> OpenAICompatibleEmbedder:
        plain = Endpoint(base_url=server.address, model="test", timeout=timedelta(seconds=5))
        made.append(OpenAICompatibleEmbedder(replace(plain, **settings)))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for embedder in made:
        embedder.close()


def refusing(bad: str, status: int = 400) -> Callable[[list[str]], Reply | None]:
    return lambda texts: error(status, "invalid input") if any(bad in t for t in texts) else None


@pytest.mark.parametrize("status", [400, 413, 422])
def test_one_bad_text_is_refused_alone(server: EmbeddingServer, make: Make, status: int) -> None:
    """E-09: of 100 texts 99 have their vectors, in their places, and few requests were made."""
    server.mood = refusing("walnuts", status)
    texts = [f"note {n}" for n in range(100)]
    texts[57] = "walnuts"
    answers = make(batch_size=100).embed(texts)
    expected = HashEmbedder().embed(texts)
    for n, (answer, wanted) in enumerate(zip(answers, expected, strict=True)):
        if n == 57:
            assert isinstance(answer, ModelRefusedError)
        else:
            np.testing.assert_allclose(np.asarray(answer), np.asarray(wanted), atol=1e-5)
    assert len(server.requests) <= 2 + 2 * 7


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None
)
@given(
    bad=st.sets(st.integers(0, 29)),
    batch_size=st.sampled_from([1, 3, 8, 64]),
    total=st.integers(1, 30),
)
def test_exactly_the_bad_texts_are_refused(
    server: EmbeddingServer, make: Make, bad: set[int], batch_size: int, total: int
) -> None:
    """E-09, for any number of bad texts anywhere."""
    server.mood = refusing("walnuts")
    texts = [f"walnuts {n}" if n in bad else f"note {n}" for n in range(total)]
    answers = make(batch_size=batch_size).embed(texts)
    refused = {n for n, answer in enumerate(answers) if isinstance(answer, ModelRefusedError)}
    assert refused == {n for n in bad if n < total}


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
def test_a_busy_or_broken_endpoint_refuses_no_text(
    server: EmbeddingServer, make: Make, status: int
) -> None:
    server.mood = lambda _texts: error(status)
    with pytest.raises(ModelUnavailableError):
        make().embed(["a", "b"])
    assert len(server.requests) == 1  # the loop repeats, not the client


@pytest.mark.parametrize(("status", "word"), [(401, "key"), (403, "key"), (404, "base URL")])
def test_a_misconfigured_endpoint_refuses_no_text_and_says_so(
    server: EmbeddingServer, make: Make, status: int, word: str
) -> None:
    server.mood = lambda _texts: error(status)
    with pytest.raises(ModelUnavailableError, match=f"misconfigured.*{word}"):
        make().embed(["a"])


def test_an_endpoint_that_refuses_everything_is_not_the_texts_fault(
    server: EmbeddingServer, make: Make
) -> None:
    """A 400 for a parameter it doesn't know must not park a million records."""
    server.mood = lambda _texts: error(400, "unknown parameter")
    with pytest.raises(ModelUnavailableError, match="plain word"):
        make().embed(["a", "b"])


def test_no_answer_within_the_time_allowed_is_transient(
    server: EmbeddingServer, make: Make
) -> None:
    server.mood = server.stall
    with pytest.raises(ModelUnavailableError, match="no answer"):
        make(timeout=timedelta(milliseconds=200)).embed(["a"])


def test_nobody_there_is_transient(make: Make) -> None:
    with pytest.raises(ModelUnavailableError, match="no answer"):
        make(base_url="http://127.0.0.1:9/v1").embed(["a"])


def test_the_dimension_is_asked_once(server: EmbeddingServer, make: Make) -> None:
    """E-06: left out in the settings, it is the endpoint's."""
    embedder = make()
    assert (embedder.dimension, embedder.dimension) == (64, 64)
    assert len(server.requests) == 1


def test_another_dimension_halts(server: EmbeddingServer, make: Make) -> None:
    """E-06: never mixed, and both numbers are named."""
    with pytest.raises(EngineMismatchError, match=r"64.*1024"):
        make(dimension=1024).embed(["a"])
    server.dimension = 64
    embedder = make()
    assert embedder.dimension == 64
    server.dimension = 32  # the endpoint was switched to another model
    with pytest.raises(EngineMismatchError, match=r"32.*64"):
        embedder.embed(["a"])


def _too_few(server: EmbeddingServer, texts: list[str]) -> Reply:
    answer = server.vectors(texts)
    return 200, {**answer, "data": answer["data"][1:]}


def _twice_the_same_place(server: EmbeddingServer, texts: list[str]) -> Reply:
    answer = server.vectors(texts)
    return 200, {**answer, "data": [{**row, "index": 0} for row in answer["data"]]}


@pytest.mark.parametrize(
    "spoil",
    [
        _too_few,
        _twice_the_same_place,
        lambda server, texts: (200, server.vectors(texts, scale=0.0)),
        lambda server, texts: (200, server.vectors(texts, scale=float("nan"))),
        lambda server, texts: (200, server.vectors(texts, scale=float("inf"))),
        lambda _server, _texts: (200, {"object": "list", "data": None}),
        lambda _server, _texts: (200, b"<html>a proxy's page</html>"),
        lambda _server, _texts: (200, {"data": [{"index": 0, "embedding": "x"}] * 2}),
    ],
    ids=["too few", "same place", "zero", "nan", "inf", "no data", "html", "no vector"],
)
def test_an_answer_that_is_none_is_transient(
    server: EmbeddingServer,
    make: Make,
    spoil: Callable[[EmbeddingServer, list[str]], Reply],
) -> None:
    server.mood = lambda texts: spoil(server, texts)
    with pytest.raises(ModelUnavailableError):
        make().embed(["a", "b"])


TOO_LONG = [
    "This model's maximum context length is 8192 tokens, however you requested 9000 tokens",
    "Input is too long for requested model",
    "the input length exceeds the context length",
    "`inputs` must have less than 512 tokens. Given: 600: token limit exceeded",
]


@pytest.mark.parametrize("said", TOO_LONG)
def test_a_text_over_the_window_is_embedded_in_pieces(
    server: EmbeddingServer, make: Make, said: str
) -> None:
    """E-08: its last sentence counts, its neighbour in the batch is whole."""
    server.mood = lambda texts: error(400, said) if any(len(t) > 600 for t in texts) else None
    long = "weather report " * 60 + "Zanzibar " * 60
    embedder = make()
    answer, other = embedder.embed([long, "a note"])
    (asked,) = embedder.embed(["Zanzibar"])
    assert isinstance(answer, np.ndarray)
    assert isinstance(asked, np.ndarray)
    assert float(np.linalg.norm(answer)) == pytest.approx(1, abs=1e-5)
    assert float(answer @ asked) > 0.4
    np.testing.assert_allclose(
        np.asarray(other), np.asarray(HashEmbedder().embed(["a note"])[0]), atol=1e-5
    )


def test_pieces_of_a_known_window_are_cut_up_front(server: EmbeddingServer, make: Make) -> None:
    """E-08: no request is refused for its length, and each piece counts by its length."""
    server.mood = lambda texts: error(400, "too long") if any(len(t) > 512 for t in texts) else None
    text = "绿" * 600
    (answer,) = make(window_chars=512).embed([text])
    assert [[len(t) for t in texts] for texts in server.requests] == [[512, 88]]
    assert isinstance(answer, np.ndarray)


def test_a_bad_piece_refuses_its_text_only(server: EmbeddingServer, make: Make) -> None:
    server.mood = refusing("walnuts")
    first, second = make(window_chars=10).embed(["0123456789 walnuts", "0123456789 almonds"])
    assert isinstance(first, ModelRefusedError)
    assert isinstance(second, np.ndarray)
