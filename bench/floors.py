"""The floors that writes are measured against: plain COPY of the same rows, one bare insert."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import psycopg

TRANSACTION = 1_000
TABLES = ("memory", "memory_version", "outbox")


def dump(url: str) -> dict[str, tuple[str, list[bytes]]]:
    """Read the rows that a bulk wrote, as COPY gives them, with their columns."""
    dumped = {}
    with psycopg.connect(url) as conn:
        conn.execute("SET ROLE gnomon_owner")
        for table in TABLES:
            columns = ", ".join(
                f'"{name}"'
                for (name,) in conn.execute(
                    "SELECT column_name FROM information_schema.columns"
                    " WHERE table_name = %s ORDER BY ordinal_position",
                    (table,),
                )
            )
            order = {"memory": "id", "memory_version": "memory_id", "outbox": "memory_id"}[table]
            copy_out = f"COPY (SELECT {columns} FROM {table} ORDER BY {order}) TO STDOUT"
            with conn.cursor().copy(copy_out) as stream:
                text = b"".join(bytes(block) for block in stream)
            dumped[table] = (columns, text.splitlines(keepends=True))
    return dumped


def copy_rate(url: str, dumped: dict[str, tuple[str, list[bytes]]], writers: int) -> float:
    """Write the dumped rows with plain COPY, past row-level security; returns records a second.

    The rows lie ready as bytes, so the floor pays for nothing but the server and the wire.
    """
    count = len(dumped["memory"][1])
    parts = [_part(dumped, writers, n) for n in range(writers)]
    began = time.perf_counter()
    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(lambda part: _copy(url, part), parts))
    return count / (time.perf_counter() - began)


def _part(dumped: dict[str, tuple[str, list[bytes]]], writers: int, n: int) -> Any:
    return {table: (columns, rows[n::writers]) for table, (columns, rows) in dumped.items()}


def _copy(url: str, part: dict[str, tuple[str, list[bytes]]]) -> None:
    chunks = {table: _chunks(rows) for table, (_, rows) in part.items()}
    with psycopg.connect(url) as conn:
        for n in range(len(chunks["memory"])):
            with conn.cursor() as cursor:
                for table, (columns, _) in part.items():
                    with cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as stream:
                        stream.write(chunks[table][n])
            conn.commit()


def _chunks(rows: Sequence[bytes]) -> list[bytes]:
    left = iter(rows)
    return [b"".join(part) for part in iter(lambda: list(islice(left, TRANSACTION)), [])]


def empty(url: str) -> None:
    """Empty the tables and set the log back to its start."""
    with psycopg.connect(url) as conn:
        conn.execute(
            "TRUNCATE memory, memory_version, outbox, mutation, source_event, link, audit,"
            " audit_head, entity, entity_link, entity_degree, name_cache, embedding_cache"
        )
        conn.execute("UPDATE shard SET pos = 0")
        conn.execute("UPDATE watermark SET pos = 0, attempts = 0")
        conn.commit()
        conn.autocommit = True
        conn.execute("CHECKPOINT")
