"""A deterministic embedder without a model, and ways to make it fail."""

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from canonical.errors import ModelRefusedError, ModelUnavailableError, PoisonError


class HashEmbedder:
    """Texts are alike as far as they share words, or characters of scripts without spaces.

    Set `down` to make it unavailable, `refuses` to refuse texts; `embedded` lists what it was
    asked for and gave, in order.
    """

    def __init__(self, dimension: int = 64, model: str = "hash") -> None:
        self.down = False
        self.refuses: Callable[[str], bool] = lambda _text: False
        self.embedded: list[str] = []
        self._dimension, self._model = dimension, model

    @property
    def model(self) -> str:
        """Name the model."""
        return self._model

    @property
    def dimension(self) -> int:
        """Return the length of every vector."""
        return self._dimension

    @property
    def unrelated(self) -> float:
        """Return two standard deviations of the cosine of two random vectors."""
        return 2 / float(self._dimension**0.5)

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.float32] | PoisonError]:
        """Return for each text its vector, of length 1, or the refusal that was asked for.

        Raises: ModelUnavailableError, while `down` is set.
        """
        if self.down:
            raise ModelUnavailableError("the fake embedder is down")
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> NDArray[np.float32] | PoisonError:
        if self.refuses(text):
            return ModelRefusedError(f"the fake embedder refuses {text[:40]!r}")
        self.embedded.append(text)
        words = re.findall(r"[a-z0-9]+|[^\W\d_a-z]", text.lower()) or [f"nothing but {text}"]
        total = np.stack([self._direction(word) for word in words]).sum(axis=0)
        if not total.any():  # the words cancel each other out
            total = self._direction(text)
        unit: NDArray[np.float32] = total / np.linalg.norm(total)
        return unit

    def _direction(self, word: str) -> NDArray[np.float32]:
        """Return signs that are arbitrary and for ever the same."""
        seed, need = word.encode(errors="replace"), -(-self._dimension // 8)
        blocks = range(-(-need // 64))
        stream = b"".join(blake2b(seed, salt=n.to_bytes(8)).digest() for n in blocks)
        signs = np.unpackbits(np.frombuffer(stream[:need], np.uint8))[: self._dimension]
        return signs.astype(np.float32) * 2 - 1
