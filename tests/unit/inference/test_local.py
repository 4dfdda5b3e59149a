"""WordLlama's vectors: English as WordLlama makes them, Chinese made useful, no network."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from inference.local import UNRELATED, WordLlamaEmbedder
from inference.protocols import Vectors

SAMPLE = json.loads((Path(__file__).parent / "memorybank_sample.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


def vectors(embedder: WordLlamaEmbedder, texts: list[str]) -> Vectors:
    return np.stack([v for v in embedder.embed(texts) if isinstance(v, np.ndarray)])


@pytest.mark.parametrize("language", ["en", "cn"])
def test_unrelated_is_what_nearly_all_unrelated_pairs_stay_below(
    embedder: WordLlamaEmbedder, language: str
) -> None:
    """One threshold serves both languages: what different users said is unrelated."""
    users = SAMPLE[language]
    found = vectors(embedder, [text for texts in users.values() for text in texts])
    of = np.repeat(list(users), [len(texts) for texts in users.values()])
    cosines = (found @ found.T)[of[:, None] != of[None, :]]
    assert np.percentile(cosines, 95) == pytest.approx(UNRELATED, abs=0.06)


def test_english_is_pooled_as_wordllama_does(embedder: WordLlamaEmbedder) -> None:
    """The model is loaded past its own loader, so its own answer is the measure."""
    script = """
import json, sys, wordllama
from pathlib import Path
folder = Path(wordllama.__file__).parent
model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
print(json.dumps(model.embed(json.loads(sys.argv[1]), norm=True).tolist()))
"""
    texts = [text for text in itertools.chain(*SAMPLE["en"].values()) if text.isascii()][:40]
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(texts)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    np.testing.assert_allclose(vectors(embedder, texts), json.loads(done.stdout), atol=1e-4)


def test_an_unknown_character_counts(embedder: WordLlamaEmbedder) -> None:
    """The vocabulary has no 喝, 绿 or 杭: as bytes they would all look alike."""
    tea, hangzhou, query = vectors(embedder, ["绿茶很香", "杭州很香", "绿"])
    assert tea @ query > hangzhou @ query + 0.2


def test_importing_and_making_one_loads_nothing_and_no_call_opens_a_socket() -> None:
    script = """
import socket, sys
from inference.local import WordLlamaEmbedder
embedder = WordLlamaEmbedder()
assert embedder.dimension == 256 and embedder.model and embedder.unrelated
heavy = {"tokenizers", "safetensors", "wordllama", "requests", "huggingface_hub"} & set(sys.modules)
assert not heavy, heavy
def refuse(*_args, **_kw):
    raise AssertionError("a socket was opened")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
import logging
before = logging.getLogger().handlers[:], logging.getLogger().level
embedder.embed(["hello", "绿茶", ""])
assert (logging.getLogger().handlers, logging.getLogger().level) == before
assert not {"wordllama", "requests"} & set(sys.modules)
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        cwd=root,
    )
    assert done.returncode == 0, done.stderr
