"""The embedder that needs no key, no download and no GPU: WordLlama's token vectors, pooled."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from canonical.errors import ModelUnavailableError, PoisonError
from inference.protocols import Vectors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DIMENSION: Final = 256
# The last part counts changes of the pooling below: vectors of different rules never mix.
MODEL: Final = "wordllama/l2_supercat_256/pooling-1"
# The 95th percentile of the cosine of sentences by different users of MemoryBank
# (arXiv:2305.10250), 300,000 pairs a language: .339 in English, .333 in Chinese (.844 before the
# steps for other scripts below). tests/unit/inference/test_local.py measures it again.
UNRELATED: Final = 0.34

_BATCH = 256  # texts handed to the tokenizer at once: it keeps all their tokens
_TOKENS = 4096  # token vectors in memory at once; a text of 64 KiB has some 20,000
_CHARACTER_LENGTH = 11.0  # of a made-up character vector: the mean of the model's Han vectors
# Characters that say how a Chinese sentence is built, not what it is about. In English the model
# has learnt to make such words short; its Han vectors are all about equally long.
_FUNCTION_CHARACTERS = frozenset(
    "的了是我你他她它们在有和就不也吗呢吧啊这那个一都会很什么怎"
    "还要可以能为到说去上着没请您把被让给对与及或但而如果因所"
)


class WordLlamaEmbedder:
    """WordLlama's 256 dimensions (docs/adr/0004). Threads may share one.

    Guarantee: never touches the network; the model's files come with its package. Any text has a
               vector, and the same text always the same one. English is WordLlama's own pooling.
    Cost:      importing and making it are free; the first `embed` loads 66 MB in half a second.
    """

    def __init__(self) -> None:
        self._loading = Lock()
        self._loaded: _Model | None = None

    @property
    def model(self) -> str:
        """Name the model and how its token vectors are pooled."""
        return MODEL

    @property
    def dimension(self) -> int:
        """Return the length of every vector."""
        return DIMENSION

    @property
    def unrelated(self) -> float:
        """Return the cosine that 95 % of unrelated pairs stay below."""
        return UNRELATED

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.float32] | PoisonError]:
        """Return for each text its vector, of length 1.

        Cost:   some 10,000 short texts a second and core.
        Raises: ModelUnavailableError, when the model's files can't be read.
        """
        model = self._model()
        return [
            vector
            for start in range(0, len(texts), _BATCH)
            for vector in model.pooled(texts[start : start + _BATCH])
        ]

    def _model(self) -> "_Model":
        with self._loading:
            if self._loaded is None:
                self._loaded = _load()
            return self._loaded


@dataclass(frozen=True, slots=True)
class _Model:
    """`raw`: the model's token vectors; `weighed`: what is summed; `known`: its characters."""

    tokenizer: "Tokenizer"
    raw: Vectors
    weighed: Vectors
    known: frozenset[str]

    def pooled(self, texts: Sequence[str]) -> Iterable[NDArray[np.float32]]:
        # The tokenizer refuses lone surrogates, which no text of ours holds: they become "?".
        sound = [text.encode(errors="replace").decode() for text in texts]
        encoded = self.tokenizer.encode_batch_fast(sound, add_special_tokens=False)
        for text, tokens in zip(sound, encoded, strict=True):
            yield self._vector(text, np.asarray(tokens.ids, dtype=np.intp))

    def _vector(self, text: str, ids: NDArray[np.intp]) -> NDArray[np.float32]:
        total = _summed(self.weighed, ids)
        if not text.isascii():
            for character in text:
                if character not in self.known:
                    total += _stand_in(character)
        if not total.any():  # nothing but function characters, punctuation or white space
            total = _summed(self.raw, ids)
        if not total.any():  # no tokens at all
            total = _made_up("").astype(np.float64)
        return (total / np.linalg.norm(total)).astype(np.float32)


def _summed(table: Vectors, ids: NDArray[np.intp]) -> NDArray[np.float64]:
    total = np.zeros(DIMENSION)
    for start in range(0, len(ids), _TOKENS):
        total += table[ids[start : start + _TOKENS]].sum(axis=0, dtype=np.float64)
    return total


def _load() -> _Model:
    """Read the files that come with WordLlama.

    Its own loader would import an HTTP client, look into a cache below the home directory and set
    up the root logger; the two files and the pooling are all that is needed of it.
    """
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - importing us stays cheap
    from tokenizers import Tokenizer  # noqa: PLC0415

    folder = _folder()
    tokens = folder / "tokenizers" / "l2_supercat_tokenizer_config.json"
    weights = folder / "weights" / "l2_supercat_256.safetensors"
    try:
        tokenizer = Tokenizer.from_str(tokens.read_text(encoding="utf-8"))
        with safe_open(str(weights), framework="np") as file:
            raw = np.ascontiguousarray(file.get_tensor("embedding.weight"), dtype=np.float32)
    except (OSError, ValueError, SafetensorError) as exc:
        raise ModelUnavailableError(f"the files of wordllama can't be read: {exc}") from exc
    tokenizer.no_padding()
    tokenizer.no_truncation()
    words = [tokenizer.id_to_token(n) or "" for n in range(len(raw))]
    known = frozenset(word for word in words if len(word) == 1)
    return _Model(tokenizer, raw, _weighed(raw, words), known)


def _folder() -> Path:
    spec = find_spec("wordllama")  # finds it without importing it
    if spec is None or spec.origin is None:
        raise ModelUnavailableError("the package wordllama is not installed")
    return Path(spec.origin).parent


def _weighed(raw: Vectors, words: Sequence[str]) -> Vectors:
    """Return the token vectors as they are summed: ASCII as it is, other scripts made useful.

    The model was trained on English. Its Han vectors have a large common part ("this is
    Chinese"), which alone makes any two Chinese texts alike: each script's mean is taken out. A
    character that the vocabulary lacks comes as bytes, which say nothing: those are dropped, and
    `_stand_in` stands for the character. Without these steps the answer to a Chinese question is
    among the ten nearest of 566 in 25 of 100 cases, with them in 39 (English: 54).
    """
    weighed = raw.copy()
    scripts = np.array([_script(word) for word in words])
    for script in ("han", "kana", "hangul", "other"):
        weighed[scripts == script] -= raw[scripts == script].mean(axis=0)
    dropped = [n for n, word in enumerate(words) if _is_empty(word, scripts[n])]
    weighed[dropped] = 0
    return weighed


def _script(word: str) -> str:
    if word.startswith("<0x"):
        return "byte"
    bare = word.strip("▁")
    if bare.isascii():
        return "ascii"
    name = unicodedata.name(bare[0], "")
    for prefix, script in (("CJK UNIFIED", "han"), ("HANGUL", "hangul")):
        if name.startswith(prefix):
            return script
    return "kana" if name.startswith(("HIRAGANA", "KATAKANA")) else "other"


def _is_empty(word: str, script: str) -> bool:
    if script in ("byte", "ascii"):
        return script == "byte" or not word.strip("▁")
    return word in _FUNCTION_CHARACTERS or not any(_has_content(c) for c in word.strip("▁"))


def _has_content(character: str) -> bool:
    """Tell whether a character is a letter, a digit, a mark or a symbol such as an emoji."""
    category = unicodedata.category(character)
    return category[0] in "LNM" or category == "So"


@lru_cache(maxsize=8192)
def _stand_in(character: str) -> NDArray[np.float32]:
    """Return what stands for a character that the model doesn't know; zero if it says nothing."""
    if _has_content(character):
        return _made_up(character)
    return np.zeros(DIMENSION, dtype=np.float32)


def _made_up(seed: str) -> NDArray[np.float32]:
    """Return a vector that is arbitrary, for ever the same, and near no other."""
    digest = blake2b(seed.encode(), digest_size=DIMENSION // 8).digest()
    signs = np.unpackbits(np.frombuffer(digest, np.uint8)).astype(np.float32) * 2 - 1
    return signs * np.float32(_CHARACTER_LENGTH / DIMENSION**0.5)
