"""Which terms a text has: the one rule for documents, for queries and for the canonical tail.

Three steps. *Fold*: NFKC, case, accents of Latin and Greek, Arabic and Hebrew points, the decimal
digits of every script, invisible signs. *Cut*: words (letters, marks and digits, with joiners such
as `-`, `.`, `/` and `@` inside: codes, versions, addresses, paths) and runs of scripts that are
written without spaces (Han, kana, hangul, Thai …). *Spell*: a word gives its English stem; a word
with joiners gives its whole form and its parts; a run gives pairs of neighbouring signs, and in
documents also the single signs, so that a query of one sign finds them.

A term holds no white space: engines index terms joined by spaces. To change what any text gives
means to raise `ANALYSIS`: an index made by another rule is then refused and built again.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib.metadata import version
from itertools import chain, pairwise
from threading import Lock

# Not `snowballstemmer.stemmer(…)`: that takes PyStemmer, whatever its version, where it is there.
from snowballstemmer.english_stemmer import EnglishStemmer

from projectors.keyword.folding import classes, fold
from projectors.keyword.stopwords import ENGLISH, SIGNS

# Part of a generation's schema. The stemmer's version is in it, because a release of it may change
# stems; Unicode's is not: a new one touches only signs that had no meaning before.
ANALYSIS = f"1+snowball-{version('snowballstemmer')}"

MAX_TERMS = 65_536  # of a document; a text of 64 KiB has fewer, unless made to have more
MAX_QUERY_TERMS = 256
MAX_TERM = 64  # characters; OpenSearch's white space tokenizer cuts at 255

_CACHED = 1 << 16  # words and pieces each; some 25 MB when full
_CACHED_LENGTH = 48  # longer words are rare and their terms may be many
_STEMMED_LENGTH = 32  # no English word is longer


# Over the classes of signs (see `folding.classes`), not over the signs themselves. The comma joins
# thousands. C++, C#, F#: the suffix counts only behind the whole word. Whatever begins a token
# matches, so nothing is ever tried again; and Python before 3.11.5 cuts what `*+` has matched.
_JOINER = r"(?:[-._/\\@'+&=#~]|:(?://|\\)?|(?<=d),(?=ddd(?!d)))"
_TOKEN = re.compile(rf"[wd][wdm]*(?:{_JOINER}[wd][wdm]*)*(?:\+\+|#)?|c[cm]*")
_FIELDS = re.compile(r"[/\\@:+&=#~]+")
_PARTS = re.compile(r"[-._/\\@:'+&=#~]+")
_CONTRACTED = re.compile(r"(.+)'(?:s|re|ve|ll|d|m)")
_JOINED = re.compile(r"(\w+)[-.'](\w+)")
_VERSION = re.compile(r"v\d[\d.]*")

_stemmer = EnglishStemmer()
_stemming = Lock()  # the stemmer keeps the word at hand in itself


def terms(text: str) -> list[str]:
    """Return the terms of a document, as often as they occur.

    Guarantee: never raises on a valid string; no term is empty, holds white space or is longer
               than `MAX_TERM`; at most `MAX_TERMS`, the first ones.
    Cost:      linear; some 10 µs for a sentence.
    """
    folded = fold(text)
    if folded.isascii():
        # Nothing the grammar takes together holds white space, so pieces can be read one by one.
        found = list(chain.from_iterable(map(_pieces.__getitem__, folded.split())))
    else:
        found = _terms_of(folded)
    del found[MAX_TERMS:]
    return found


def _terms_of(folded: str) -> list[str]:
    found: list[str] = []
    for token, is_run in _cut(folded):
        found += _run_terms(token) if is_run else _words[token]
    return found


def query_terms(text: str) -> list[str]:
    """Return the terms to ask for: each once, in the order of the text.

    Guarantee: each is a term of any document that holds the word (or the run around the signs).
               Stop words are left out, unless there is nothing else; particles of one sign always.
    Shapes:    empty for a text without words; at most `MAX_QUERY_TERMS`.
    """
    tokens = list(_cut(fold(text)))
    asked = [token for token in tokens if token[1] or not is_stop_word(token[0])]
    return (_asked_terms(asked) or _asked_terms(tokens))[:MAX_QUERY_TERMS]


def _asked_terms(tokens: Iterable[tuple[str, bool]]) -> list[str]:
    found: dict[str, None] = {}
    for token, is_run in tokens:
        found |= dict.fromkeys(_asked_signs(token) if is_run else _words[token])
    return list(found)


def is_stop_word(word: str) -> bool:
    """Tell whether a folded word is too common to ask for."""
    return word in ENGLISH or ("'" in word and _without_apostrophe(word) in ENGLISH)


def _cut(folded: str) -> Iterator[tuple[str, bool]]:
    """Yield the words and runs of a folded text; True for a run."""
    kinds = classes(folded)
    for match in _TOKEN.finditer(kinds):
        start, end = match.span()
        yield folded[start:end], kinds[start] == "c"


class _Remembered(dict[str, tuple[str, ...]]):
    """Terms, worked out when first asked for; bounded in number and in size."""

    def __init__(self, work_out: Callable[[str], Iterable[str]]) -> None:
        super().__init__()
        self._work_out = work_out

    def __missing__(self, text: str) -> tuple[str, ...]:
        found = tuple(self._work_out(text))
        if len(text) <= _CACHED_LENGTH:
            if len(self) >= _CACHED:
                self.clear()
            self[text] = found
        return found


def _spell(word: str) -> tuple[str, ...]:
    if "'" in word:
        word = _without_apostrophe(word)
    if word.isalnum() and word.isascii():
        return (_stem(word),)
    parts = _PARTS.split(word)
    if len(parts) == 1:
        return (_bounded(word.replace(",", "")),)  # 1,000 is 1000
    return tuple(dict.fromkeys(_compound(word, [part for part in parts if part])))


def _compound(word: str, parts: list[str]) -> Iterator[str]:
    """Yield the forms under which a word with joiners is found: whole, by fields, by parts."""
    yield _bounded(word)
    if _VERSION.fullmatch(word):
        yield from _compound(word[1:], _PARTS.split(word[1:]))  # v2.3.1 is 2.3.1
    if joined := _JOINED.fullmatch(word):
        yield _stem(joined[1] + joined[2])  # e-mail is email, TK-00042 is TK00042
    for field in _FIELDS.split(word):
        if field:
            yield _stem(field)
    for part in parts:
        yield _stem(part)


def _without_apostrophe(word: str) -> str:
    """Return Ann for Ann's, we for we're, dont for don't, and O'Brien as it is."""
    if word.endswith("n't"):
        return word.replace("'", "")
    contracted = _CONTRACTED.fullmatch(word)
    return contracted[1] if contracted else word


def _stem(word: str) -> str:
    word = word.replace(",", "")
    if not (word.isascii() and word.isalpha()) or len(word) > _STEMMED_LENGTH:
        return _bounded(word)
    return _stem_cached(word)


@lru_cache(_CACHED)
def _stem_cached(word: str) -> str:
    with _stemming:
        return str(_stemmer.stemWord(word))


def _bounded(word: str) -> str:
    """Shorten a long word so that two of them stay equal only if they were."""
    if len(word) <= MAX_TERM:
        return word
    digest = hashlib.blake2b(word.encode(), digest_size=12).hexdigest()
    return f"{word[: MAX_TERM - len(digest) - 1]}~{digest}"


def _signs(run: str) -> list[str]:
    """Cut a run into its signs, each with the marks that sit on it."""
    if len(run) == 1:
        return [run]
    kinds = classes(run)
    if "m" not in kinds:
        return list(run)
    starts = [n for n, kind in enumerate(kinds) if kind == "c"]
    return [_bounded(run[a:b]) for a, b in zip(starts, [*starts[1:], len(run)], strict=True)]


def _pairs(signs: list[str]) -> list[str]:
    return [_bounded(a + b) for a, b in pairwise(signs)]


def _run_terms(run: str) -> list[str]:
    signs = _signs(run)
    return signs + _pairs(signs)


def _asked_signs(run: str) -> list[str]:
    signs = _signs(run)
    return _pairs(signs) or [sign for sign in signs if sign not in SIGNS]


_pieces, _words = _Remembered(_terms_of), _Remembered(_spell)
