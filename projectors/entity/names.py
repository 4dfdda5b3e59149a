"""Names as they are compared: one form for what a model found and for what a query says."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from projectors.entity.schema import MAX_NAME_CHARS

MIN_NAME_CHARS: Final = 2
MAX_WORDS: Final = 4  # of a query's run that may be a name
MAX_KEYS: Final = 256  # of one query
CACHED: Final = 1 << 16  # names come again and again
MAX_CJK: Final = 6  # characters of a run without spaces that may be a name

ARTICLES: Final = frozenset({"the", "a", "an"})
# Words that are no name by themselves unless they are written as one.
STOP: Final = frozenset(
    """a about after all also am an and any are as at be been before but by can could did do does
    for from get got had has have he her here him his how i if in into is it its just like may me
    more most much my no not now of off on one or our out over she should so some than that the
    their them then there they this to too up us very was we were what when where which who whom
    whose why will with would you your""".split()  # noqa: SIM905 - a list of words is read as words
)

_POSSESSIVE = re.compile("['\u2019\u02bc]s?$")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")


@lru_cache(maxsize=CACHED)
def normalise(name: str) -> str:
    """Return the form in which names are compared; empty if nothing of a name is left.

    Compatibility forms, case, white space, invisible characters, punctuation around it, a
    possessive ending and leading articles make no difference. Idempotent.
    """
    before, now = None, name
    while now != before:
        before, now = now, _once(now)
    long_enough = MIN_NAME_CHARS <= len(now) <= MAX_NAME_CHARS
    return now if long_enough and any(c.isalpha() for c in now) else ""


def _once(name: str) -> str:
    folded = unicodedata.normalize("NFKC", name).casefold()
    words = "".join(c for c in folded if unicodedata.category(c) != "Cf").split()
    while len(words) > 1 and words[0] in ARTICLES:
        del words[0]
    return _POSSESSIVE.sub("", _bare(" ".join(words)))


def _bare(text: str) -> str:
    """Drop what is neither letter, digit nor mark from both ends (C++ and C# keep theirs)."""
    start, end = 0, len(text)
    while start < end and not _belongs(text[start]):
        start += 1
    while end > start and not (_belongs(text[end - 1]) or text[end - 1] in "+#"):
        end -= 1
    return text[start:end]


def _belongs(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char).startswith("M")


def words_of(name: str) -> list[str]:
    """Return the telling words of a normalised name of several words, each once."""
    parts = dict.fromkeys(normalise(part) for part in name.split(" "))
    return [part for part in parts if part and part not in STOP]


def names_in(query: str) -> list[str]:
    """Return what in a query may be a name, normalised, each once, from its beginning on.

    Every run of up to four words, and in a script without spaces every run of two to six
    characters. A query in lower case, which a model reads badly, is as good as any; what is no
    entity of the scope finds nothing.

    Shapes: at most 256 names, distinct.
    """
    words = query.split()
    found: dict[str, None] = {}
    for start, word in enumerate(words):
        for run in _runs_from(words, start):
            found[run] = None
        for run in _cjk_runs(word):
            found[run] = None
        if len(found) >= MAX_KEYS:
            break
    return list(found)[:MAX_KEYS]


def _runs_from(words: list[str], start: int) -> list[str]:
    runs = []
    for end in range(start + 1, min(start + MAX_WORDS, len(words)) + 1):
        name = normalise(" ".join(words[start:end]))
        if name and (name not in STOP or _looks_meant(words[start], first=start == 0)):
            runs.append(name)
    return runs


def _looks_meant(word: str, *, first: bool) -> bool:
    bare = _bare(word)
    return len(bare) > 1 and (bare.isupper() or (bare.istitle() and not first))


def _cjk_runs(word: str) -> list[str]:
    return [
        normalise(run[start:end])
        for run in _CJK.findall(unicodedata.normalize("NFKC", word))
        for start in range(len(run) - 1)
        for end in range(start + 2, min(start + MAX_CJK, len(run)) + 1)
    ]
