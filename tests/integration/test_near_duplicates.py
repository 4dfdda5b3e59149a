"""Texts that only look alike are records of their own, each found by its own words."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from canonical.domain.commands import new_memory
from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from canonical.mutations.bulk import Chunk, add_chunk
from canonical.store.database import Database, Role
from canonical.store.reading import CanonicalReader
from projectors.keyword.reader import KeywordIndexReader
from projectors.vector.reader import PointReader
from search.ports import Engines, always
from search.query import Query
from search.searcher import Searcher
from search.settings import SearchSettings
from tests.support.builders import NOW
from tests.support.casting import TENANT
from tests.support.http_server import DownEngine
from tests.support.projecting import Shadow

ALIKE = [f"Ticket {n:04} is for gate {'ABCDEFGHIJ'[n % 10]}" for n in range(4_000)]
MIRRORED = ["Anna owes Ben 50", "Ben owes Anna 50"]
UNHURRIED = SearchSettings(
    marks_max_age=timedelta(0), leg_budget=timedelta(seconds=20), embedding_budget=timedelta(20)
)


class Found:
    """Records on Qdrant Edge and tantivy, drained, and a search over both."""

    def __init__(
        self, stack: ExitStack, open_database: Callable[[Role], Database], place: tuple[str, Path]
    ) -> None:
        url, folder = place
        self.shadows = [Shadow(open_database, n, folder, url) for n in ("vector", "keyword")]
        self.opened = [stack.enter_context(one.opened()) for one in self.shadows]
        vector, keyword = (opened.projector._engine for opened in self.opened)  # type: ignore[attr-defined]
        self.embedder = self.opened[0].projector._vectors._embedder  # type: ignore[attr-defined]
        down: Any = always(DownEngine())
        engines = Engines(
            canonical=CanonicalReader(self.shadows[0].api),
            vector=always(PointReader(vector)),
            keyword=always(KeywordIndexReader(keyword)),
            entity=down,
            embedder=self.embedder,
        )
        self.searcher = Searcher(engines, UNHURRIED)
        stack.callback(self.searcher.close)

    def add(self, texts: list[str]) -> None:
        writer = self.shadows[0].writer()
        for start in range(0, len(texts), 1_000):
            new = [
                new_memory({"text": said, "user_id": "alice"}, writer.caller)
                for said in texts[start : start + 1_000]
            ]
            assert len(add_chunk(writer, Chunk(list(enumerate(new)))).written) == len(new)

    def drain(self) -> None:
        for shadow, opened in zip(self.shadows, self.opened, strict=True):
            shadow.drain(opened.projector)
            shadow.check(opened)

    def first(self, query: str) -> str:
        visible = Visible(scope=Scope(TENANT, user_id="alice"), now=NOW, as_of=NOW)
        answer = self.searcher.search(Query(text=query, visible=visible, top_k=1))
        return answer.hits[0].record.text


@pytest.fixture
def found(
    open_database: Callable[[Role], Database], database_url: str, tmp_path: Path
) -> Iterator[Found]:
    with ExitStack() as stack:
        yield Found(stack, open_database, (database_url, tmp_path))


def test_four_thousand_of_one_template_are_each_found_by_their_own_text(found: Found) -> None:
    """W-04: nothing is thrown away as a near-duplicate, and the one that is meant comes first."""
    found.add(ALIKE)
    found.drain()
    for said in ALIKE[:: len(ALIKE) // 40]:
        assert found.first(said) == said


def test_the_same_words_in_another_order_are_another_text(found: Found) -> None:
    """W-04: who owes whom, in the tail and in the indexes; bags of words can't tell them apart."""
    found.add(MIRRORED)
    assert [found.first(said) for said in MIRRORED] == MIRRORED
    found.drain()
    assert [found.first(said) for said in MIRRORED] == MIRRORED
