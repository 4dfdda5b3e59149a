"""How well words fit: BM25 as the engine counts it, and a coverage that means the same anywhere."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

K1 = 1.2
B = 0.75


@dataclass(frozen=True, slots=True)
class Statistics:
    """What BM25 must know of a tenant's documents. `avg_len`: terms per document, of the index.

    `collection`: among how many documents the engine itself counts a term's rarity.
    """

    n_docs: int
    df: Mapping[str, int]
    avg_len: float
    collection: float = 0
    k1: float = K1
    b: float = B

    def idf(self, term: str) -> float:
        """Return the weight of a term: the rarer, the higher; never negative."""
        return idf(self.n_docs, self.df.get(term, 0))


def idf(n_docs: float, df: int) -> float:
    """Return BM25's inverse document frequency, as Lucene and tantivy count it."""
    return math.log(1 + (max(n_docs, df) - df + 0.5) / (df + 0.5))


def bm25(query_terms: Iterable[str], text_terms: Sequence[str], statistics: Statistics) -> float:
    """Score a text that no index holds on the scale of those that one holds.

    Guarantee: equals the engine's score for the same terms and statistics (to its single
               precision); 0 when no term meets.
    """
    length = kept_length(len(text_terms))
    counts = Counter(text_terms)
    k1, b = statistics.k1, statistics.b
    floor = k1 * (1 - b + b * length / max(statistics.avg_len, 1.0))
    return sum(
        statistics.idf(term) * (k1 + 1) * counts[term] / (counts[term] + floor)
        for term in dict.fromkeys(query_terms)
        if term in counts
    )


def kept_length(length: int) -> int:
    """Return the length of a document as engines keep it in one byte.

    Source: Lucene's SmallFloat.intToByte4: exact to 40, then four significant bits.
    """
    exact = 24
    if length < exact:
        return length
    shift = max((length - exact).bit_length() - 4, 0)
    return exact + ((length - exact) >> shift << shift)


def coverage(query_terms: Iterable[str], text_terms: Iterable[str]) -> float:
    """Return the share of what is asked for that a text has: 0 nothing, 1 every term.

    Long terms count more than short ones, and codes most, as they say most. Nothing else goes in:
    neither other records nor other candidates move it, so a threshold means the same everywhere.
    """
    asked = {term: weight(term) for term in query_terms}
    if not asked:
        return 0.0
    held = asked.keys() & set(text_terms)
    return min(sum(asked[term] for term in held) / sum(asked.values()), 1.0)


def weight(term: str) -> float:
    """Return how much a term says by its looks: from about a half to 2.5."""
    telling = 3  # shorter ones are parts: days, minor versions
    code = len(term) >= telling and not term.isalpha()
    return 0.5 + min(len(term), 8) / 8 + (1.0 if code else 0.0)
