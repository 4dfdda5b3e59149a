"""What projections are measured against: the bare engines, given what they are to hold ready made.

Each floor gets the same items in the same pages, makes them durable as often as the projection
does, and reads nothing, checks nothing and keeps no marks. All return items a second.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import tantivy
from numpy.typing import NDArray
from qdrant_edge import EdgeShard, Point, UpdateOperation
from tantivy import Document

from projectors.keyword.embedded.documents import build_schema
from projectors.keyword.embedded.engine import WRITER_BYTES
from projectors.vector.embedded.engine import CALL_POINTS, FLUSH_POINTS, EdgeEngine
from projectors.vector.schema import Shape

Raw = tuple[UUID, NDArray[np.float32], dict[str, Any]]  # a point but for the form of its vector
Rows = dict[str, tuple[str, list[bytes]]]  # table -> its columns, its rows as COPY writes them


def edge_rate(
    new_folder: Callable[[], Path], shape: Shape, pages: Sequence[Sequence[Raw]]
) -> float:
    """Upsert points into an index with the same fields: the better of calls like ours and of pages.

    Vectors become Edge's lists just before a page, off the clock: thousands that have lain ready
    since long are slower to read. Points are made on it: Edge takes no other form, and making one
    is Edge's own code.
    """
    largest = max(map(len, pages))
    return max(_edge_rate(new_folder(), shape, pages, call) for call in (CALL_POINTS, largest))


def _edge_rate(folder: Path, shape: Shape, pages: Sequence[Sequence[Raw]], call: int) -> float:
    EdgeEngine.create(folder, shape).close()
    shard = EdgeShard.load(str(folder / "edge"))
    unflushed, took = 0, 0.0
    for page in pages:
        raws = [(memory_id, vector.tolist(), payload) for memory_id, vector, payload in page]
        began = time.perf_counter()
        for start in range(0, len(raws), call):
            points = [Point(*raw) for raw in raws[start : start + call]]
            shard.update(UpdateOperation.upsert_points(points))
        _sync(folder / "edge" / "wal")
        unflushed += len(page)
        if unflushed >= FLUSH_POINTS:
            shard.flush()
            unflushed = 0
        took += time.perf_counter() - began
    shard.close()
    return sum(map(len, pages)) / took


def _sync(folder: Path) -> None:
    for path in folder.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def finished(document: str) -> Document:
    """Return a document in the form that reaches the index with the least work left."""
    return Document.from_dict(json.loads(document), build_schema())


def tantivy_rate(folder: Path, pages: Sequence[Sequence[Document]]) -> float:
    """Add documents to an empty index of the same fields, with a commit a page."""
    folder.mkdir()
    writer = tantivy.Index(build_schema(), str(folder)).writer(WRITER_BYTES, 1)
    began = time.perf_counter()
    for page in pages:
        for document in page:
            writer.add_document(document)
        writer.commit()
    return sum(map(len, pages)) / (time.perf_counter() - began)


def dump(url: str, tables: Sequence[str]) -> Rows:
    """Read rows as COPY gives them, in the order in which they were written, with their columns."""
    dumped = {}
    with psycopg.connect(url) as conn:
        for table in tables:
            found = conn.execute(
                "SELECT string_agg(quote_ident(column_name), ', ' ORDER BY ordinal_position)"
                " FROM information_schema.columns WHERE table_name = %s",
                (table,),
            ).fetchone()
            assert found is not None
            copy_out = f"COPY {table} ({found[0]}) TO STDOUT"
            with conn.cursor().copy(copy_out.encode()) as stream:
                text = b"".join(bytes(block) for block in stream)
            dumped[table] = (found[0], text.splitlines(keepends=True))
    return dumped


def copy_s(url: str, rows: Rows, commits: int) -> float:
    """Write rows with plain COPY into the empty tables, in so many transactions; seconds."""
    portions = [
        [
            (f"COPY {table} ({columns}) FROM STDIN".encode(), b"".join(_share(lines, n, commits)))
            for table, (columns, lines) in rows.items()
        ]
        for n in range(commits)
    ]
    with psycopg.connect(url) as conn:
        began = time.perf_counter()
        for portion in portions:
            with conn.cursor() as cursor:
                for statement, content in portion:
                    with cursor.copy(statement) as stream:
                        stream.write(content)
            conn.commit()
        return time.perf_counter() - began


def _share(lines: Sequence[bytes], n: int, of: int) -> Sequence[bytes]:
    return lines[len(lines) * n // of : len(lines) * (n + 1) // of]
