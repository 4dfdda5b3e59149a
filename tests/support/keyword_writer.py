"""A process that writes pages into a keyword index and says so, until it is killed."""

import sys
from pathlib import Path
from uuid import UUID

from canonical.domain.scope import Scope
from projectors.keyword.embedded.engine import EmbeddedIndex
from projectors.keyword.writer import KeywordProjector
from projectors.protocol import Mark
from tests.support.keyword_index import page_of, record

PAGE = 20
SCOPE = Scope("acme", user_id="alice")


def memory(number: int) -> UUID:
    return UUID(int=number + 1)


def main(directory: Path, first_page: int) -> None:
    projector = KeywordProjector(EmbeddedIndex.open(directory))
    for page in range(first_page, 10**6):
        numbers = range(page * PAGE, (page + 1) * PAGE)
        records = [record(f"page{page} n{n}", SCOPE, id=memory(n)) for n in numbers]
        mark = Mark(page % 4, page, records[-1].id, 1, 1)
        projector.apply(page_of(records, marks=[mark]))
        sys.stdout.write(f"{page}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
