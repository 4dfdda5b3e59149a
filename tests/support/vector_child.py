"""A process that projects pages into a vector index until it is killed.

Usage: vector_child.py FIRST_PAGE ADDRESS…, which is an `OpenIndex.address`. Prints the number of
each page once it is durable.
Page n holds memories 10·n … 10·n + 9 as rev 1 and once more those of page n - 1, deleted if even.
"""

import sys
from uuid import UUID

from canonical.domain.records import Record, Status
from canonical.domain.scope import Scope
from projectors.protocol import Mark
from tests.support.vector_index import Embedded, at_address, page_of, record

PAGE = 10


def memory_id(number: int) -> UUID:
    return UUID(int=number + 1)


def first(number: int) -> Record:
    return record(f"memory {number}", Scope("t", user_id="alice"), id=memory_id(number))


def second(number: int) -> Record:
    status = Status.ACTIVE if number % 2 else Status.DELETED
    text = f"memory {number} again"
    scope = Scope("t", user_id="alice")
    return record(text, scope, id=memory_id(number), rev=2, version=2, status=status)


def page(number: int) -> list[Record]:
    here, before = number * PAGE, (number - 1) * PAGE
    fresh = [first(n) for n in range(here, here + PAGE)]
    return fresh + [second(n) for n in range(max(before, 0), here)]


def main() -> None:
    number, address = int(sys.argv[1]), sys.argv[2:]
    index = at_address(address)
    index.open()
    projector = index.projector(Embedded())
    while True:
        mark = Mark(3, number + 1, memory_id(number * PAGE), 1, 1)
        projector.apply(page_of(page(number), marks=[mark]))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        number += 1


if __name__ == "__main__":
    main()
