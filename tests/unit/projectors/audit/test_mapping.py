"""The chain's encoding: fixed for ever, and unambiguous."""

import hashlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from projectors.audit.mapping import Entry, entry_bytes, head_bytes, next_hash
from projectors.audit.schema import BEGINNING

ENTRY = Entry(
    shard=3,
    pos=7,
    tenant="t1",
    memory_id="0192f0c1-2345-7abc-8def-0123456789ab",
    version=2,
    op="update",
    status="active",
    at="2026-03-01T12:00:00.000000+00:00",
    by='Zoë "Z"',
    why=None,
    text_mac="ab" * 32,
)
MAYBE = st.none() | st.text()
ENTRIES = st.builds(
    Entry,
    st.integers(0, 15),
    st.integers(1, 2**62),
    st.text(),
    st.uuids().map(str),
    st.integers(1, 2**31 - 1),
    st.text(),
    st.text(),
    st.datetimes().map(lambda at: at.isoformat(timespec="microseconds") + "+00:00"),
    MAYBE,
    MAYBE,
    st.binary(min_size=32, max_size=32).map(bytes.hex),
)


def test_the_bytes_of_an_entry_never_change() -> None:
    """Exported heads of years ago are computed again from them."""
    assert (
        entry_bytes(ENTRY)
        == (
            '[1,3,7,"t1","0192f0c1-2345-7abc-8def-0123456789ab",2,"update","active",'
            '"2026-03-01T12:00:00.000000+00:00","Zoë \\"Z\\"",null,"' + "ab" * 32 + '"]'
        ).encode()
    )
    assert next_hash(BEGINNING, ENTRY) == hashlib.sha256(bytes(32) + entry_bytes(ENTRY)).digest()
    assert head_bytes(1, 3, 7, b"\x01") == b'[1,1,3,7,"01"]'


@given(ENTRIES)
def test_an_entry_can_be_read_back_from_its_bytes(entry: Entry) -> None:
    """So no two entries have the same bytes."""
    encoding, *fields = json.loads(entry_bytes(entry))
    assert encoding == 1
    assert Entry(*fields) == entry


@given(ENTRIES, st.sampled_from(Entry._fields), st.data())
def test_another_value_anywhere_is_another_hash(
    entry: Entry, name: str, data: st.DataObject
) -> None:
    other: Any = data.draw(ENTRIES)
    changed = entry._replace(**{name: getattr(other, name)})
    same = changed == entry
    assert (next_hash(BEGINNING, changed) == next_hash(BEGINNING, entry)) is same
    assert next_hash(b"\x01" * 32, entry) != next_hash(BEGINNING, entry)
