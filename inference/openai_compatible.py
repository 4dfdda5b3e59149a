"""The embedder that asks any endpoint which speaks OpenAI's /embeddings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from canonical.errors import (
    EngineMismatchError,
    ModelRefusedError,
    ModelUnavailableError,
    PoisonError,
)
from inference.protocols import Vectors

if TYPE_CHECKING:
    from openai import OpenAI

# What the endpoint says of the content it was sent; everything else is about the endpoint itself.
_REFUSED: Final = frozenset({400, 413, 422})
_MISCONFIGURED: Final = {
    401: "it refuses the API key",
    403: "the API key may not use this model",
    404: "it has no such model, or the base URL is wrong (it usually ends in /v1)",
}
_PROBE: Final = "dimension"  # a text that no sound endpoint refuses


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where and how to ask.

    Units: `window_chars`: a longer text is embedded in pieces of that many characters. A token is
           some 4 characters of English and may be less than one of Chinese: below the model's
           window in tokens nothing can be too long for it.
    """

    base_url: str
    model: str
    api_key: str = "none"  # local servers ask for none, the client insists on one
    dimension: int | None = None  # None: asked of the endpoint at the first use
    unrelated: float = 0.2  # of the model: see `Embedder.unrelated`; 0.2 fits most sentence models
    batch_size: int = 64
    window_chars: int | None = None
    timeout: timedelta = timedelta(seconds=30)


class OpenAICompatibleEmbedder:
    """Vectors from an endpoint. Threads may share one.

    Guarantee: a text is refused only when the endpoint refused that text by itself and took
               another; a dead, slow, throttled or misconfigured endpoint refuses nothing. A text
               that is too long is embedded in pieces and averaged, so its last sentence counts
               too. Repeats are the caller's: nothing is tried twice in here.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._probing = Lock()
        self._dimension = endpoint.dimension

    @property
    def model(self) -> str:
        """Name the model."""
        return self._endpoint.model

    @property
    def dimension(self) -> int:
        """Return the length of every vector; unless it was set, the endpoint is asked once.

        Raises: ModelUnavailableError, when it has to be asked and doesn't answer.
        """
        with self._probing:
            if self._dimension is None:
                self._dimension = self._probe()
            return self._dimension

    @property
    def unrelated(self) -> float:
        """Return the cosine that unrelated texts typically reach with this model, as it was set."""
        return self._endpoint.unrelated

    def close(self) -> None:
        """Close the connections."""
        if "_client" in self.__dict__:
            self._client.close()

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.float32] | PoisonError]:
        """Return for each text its vector, of length 1, or why the endpoint refuses that text.

        Cost:   a request per `batch_size` pieces; a batch with a bad one is halved until it stands
                alone, some 2·log2(`batch_size`) requests more for each.
        Raises: ModelUnavailableError, when the endpoint doesn't answer as it should.
                EngineMismatchError, when its vectors have another dimension.
        """
        pieces = [_Piece(n, part) for n, text in enumerate(texts) for part in self._split(text)]
        found: list[_Pooled] = [_Pooled() for _ in texts]
        size = self._endpoint.batch_size
        for start in range(0, len(pieces), size):
            batch = pieces[start : start + size]
            for piece, result in zip(batch, self._halving([p.text for p in batch]), strict=True):
                found[piece.of].add(result, len(piece.text))
        return [pooled.result() for pooled in found]

    def _split(self, text: str) -> Iterator[str]:
        window = self._endpoint.window_chars or len(text) or 1
        if not text.strip():
            yield " "  # most endpoints refuse an empty input
            return
        for start in range(0, len(text), window):
            if (part := text[start : start + window]).strip():
                yield part

    def _halving(self, texts: Sequence[str]) -> list[Vectors | PoisonError]:
        """Ask for a batch; of a refused one ask for each half, down to the text that is refused."""
        try:
            return list(self._ask(texts))
        except ModelRefusedError as exc:
            if len(texts) > 1:
                half = len(texts) // 2
                return self._halving(texts[:half]) + self._halving(texts[half:])
            return [self._in_pieces(texts[0], exc)]

    def _in_pieces(self, text: str, refusal: ModelRefusedError) -> Vectors | PoisonError:
        """Embed the halves of a text that is too long for the model; else it stays refused."""
        half = len(text) // 2
        if not _is_too_long(refusal) or half < 1:
            self._probe()  # an endpoint that refuses whatever it is sent is not the text's fault
            return refusal
        pooled = _Pooled()
        for part in (text[:half], text[half:]):
            for result in self._halving([part]) if part.strip() else ():
                pooled.add(result, len(part))
        return pooled.result()

    def _ask(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of one request, checked.

        Raises: ModelRefusedError, when the endpoint refused the content of this batch.
        """
        from openai import APIConnectionError, APIError, APIStatusError  # noqa: PLC0415 - as below

        try:
            answer = self._client.embeddings.create(
                model=self.model, input=list(texts), encoding_format="float"
            )
        except APIStatusError as exc:
            raise self._translated(exc.status_code, exc.message) from exc
        except APIConnectionError as exc:  # a time-out, too
            raise self._unavailable(f"no answer: {exc.__cause__ or exc}") from exc
        except (APIError, ValueError) as exc:
            raise self._unavailable(f"no usable answer: {exc}") from exc
        return self._checked(answer, len(texts))

    def _translated(self, status: int, said: str) -> ModelRefusedError | ModelUnavailableError:
        if status in _REFUSED:
            return ModelRefusedError(f"{self.model} refuses this text ({status}): {said[:500]}")
        if status in _MISCONFIGURED:
            return self._unavailable(f"misconfigured, {_MISCONFIGURED[status]} ({status}): {said}")
        return self._unavailable(f"it answers {status}: {said}")

    def _unavailable(self, problem: str) -> ModelUnavailableError:
        return ModelUnavailableError(
            f"embeddings of {self.model} at {self._endpoint.base_url}: {problem[:500]}"
        )

    def _checked(self, answer: Any, count: int) -> Vectors:
        try:
            rows = sorted(answer.data, key=lambda row: row.index)
            places = [row.index for row in rows]
            vectors = np.array([row.embedding for row in rows], dtype=np.float32)
        except (AttributeError, TypeError, ValueError) as exc:
            raise self._unavailable(f"an answer that is no list of vectors: {exc}") from exc
        if places != list(range(count)):
            raise self._unavailable(f"{len(places)} vectors for {count} texts")
        if self._dimension is not None and vectors.shape[1:] != (self._dimension,):
            raise EngineMismatchError(
                f"{self.model} at {self._endpoint.base_url} gives vectors of {vectors.shape[1:]} "
                f"dimensions, {self._dimension} were expected"
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths).all() and lengths.all()):
            raise self._unavailable("a vector that is zero or not finite")
        unit: Vectors = vectors / lengths
        return unit

    def _probe(self) -> int:
        try:
            return int(self._ask([_PROBE]).shape[1])
        except ModelRefusedError as exc:
            raise self._unavailable(f"it refuses a plain word: {exc}") from exc

    @cached_property
    def _client(self) -> "OpenAI":
        from openai import OpenAI  # noqa: PLC0415 - takes a second to import

        return OpenAI(
            base_url=self._endpoint.base_url,
            api_key=self._endpoint.api_key,
            timeout=self._endpoint.timeout.total_seconds(),
            max_retries=0,
        )


@dataclass(frozen=True, slots=True)
class _Piece:
    of: int  # the text's place
    text: str


@dataclass(slots=True)
class _Pooled:
    """The weighted mean of a text's pieces, or the first refusal of one of them."""

    total: Vectors | None = None
    refusal: PoisonError | None = field(default=None)

    def add(self, result: Vectors | PoisonError, weight: int) -> None:
        if isinstance(result, PoisonError):
            self.refusal = self.refusal or result
        else:
            self.total = result * weight if self.total is None else self.total + result * weight

    def result(self) -> Vectors | PoisonError:
        if self.refusal is not None:
            return self.refusal
        assert self.total is not None, "every text has a piece"
        return self.total / np.linalg.norm(self.total)


def _is_too_long(refusal: ModelRefusedError) -> bool:
    """Tell whether a refusal is about length. Servers share no code for it, but they all say it."""
    said = str(refusal).lower()
    signs = ("too long", "too large", "context length", "maximum context", "max_seq", "token limit")
    return any(sign in said for sign in signs) or ("token" in said and "exceed" in said)
