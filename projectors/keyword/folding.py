"""What makes two spellings of a text one, and which of its signs build words."""

import re
import unicodedata
from collections.abc import Callable

# Scripts written without spaces between words, and hangul, whose words carry their particles.
_UNSPACED = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1100, 0x11FF), (0x1780, 0x17FF)),  # Thai, Lao, Myanmar
    *((0x1950, 0x19DF), (0x1A20, 0x1AAF), (0xA9E0, 0xA9FF), (0xAA60, 0xAADF)),  # Tai scripts
    *((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x312F), (0x3130, 0x318F), (0x31A0, 0x31FF)),
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA4CF), (0xA960, 0xA97F), (0xAC00, 0xD7FF)),
    *((0xF900, 0xFAFF), (0x16FE0, 0x18DFF), (0x1AFF0, 0x1B2FF), (0x20000, 0x3FFFF)),
)
# Marks that a writer may leave out: Hebrew and Arabic points, accents on Latin and Greek letters.
# The marks of other scripts are part of the letter (й, が, every Indic vowel). Points go first:
# they may stand between a letter and its accent.
_POINTS = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4]+"
)
_ACCENTS = re.compile("(?<=[a-z\u03b1-\u03c9])[\u0300-\u036f]+")
_ALIKE: dict[str, str | None] = {
    **dict.fromkeys("\u2018\u2019\u02bc\u201b", "'"),
    **dict.fromkeys("\u2010\u2011\u2212", "-"),
    "\u200b": " ",  # zero width, yet it parts words
    "\u0640": None,  # the Arabic stretching sign
    **dict.fromkeys(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))),  # variants
}
_JOINERS = "-._/\\@:'+&=#~,"
_REMEMBERED = 0x20000  # characters up to here are kept in the tables: at most some 10 MB


class _Table(dict[int, str | None]):
    """A table for `str.translate` that fills itself as signs are met."""

    def __init__(self, look_up: Callable[[str], str | None]) -> None:
        super().__init__()
        self._look_up = look_up

    def __missing__(self, point: int) -> str | None:
        found = self._look_up(chr(point))
        if point < _REMEMBERED:
            self[point] = found
        return found


def _look_alike(sign: str) -> str | None:
    """Return what a sign means: itself, another one, or nothing."""
    if sign in _ALIKE:
        return _ALIKE[sign]
    match unicodedata.category(sign):
        case "Nd":
            return str(unicodedata.decimal(sign))
        case "Cf":
            return None  # joiners, direction marks, soft hyphens
        case _:
            return sign


def _part_played(sign: str) -> str:
    """Return w for a letter, d digit, c unspaced letter, m mark, the sign itself if a joiner."""
    category = unicodedata.category(sign)
    if sign in _JOINERS:
        return sign
    if category == "Nd":
        return "d"
    if category[0] == "M":
        return "m"
    if category[0] not in "LN":
        return " "
    return "c" if any(low <= ord(sign) <= high for low, high in _UNSPACED) else "w"


_alike, _classes = _Table(_look_alike), _Table(_part_played)


def fold(text: str) -> str:
    """Return the one form of all spellings that mean the same; folding it again changes nothing.

    Source: Unicode, caseless compatibility matching (chapter 3.13, D146): decompose before and
            after the case is folded, compose last.
    """
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    text = _ACCENTS.sub("", _POINTS.sub("", text.translate(_alike)))
    return unicodedata.normalize("NFKC", text)


def classes(folded: str) -> str:
    """Return, for each sign of a folded text, the part it plays in words."""
    return folded.translate(_classes)
