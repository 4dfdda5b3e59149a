"""Add one memory, in one round trip."""

from contextlib import suppress

from canonical.domain import decide, ids
from canonical.domain.answers import Written
from canonical.domain.commands import MutationKey, NewMemory
from canonical.errors import StoreUnavailableError
from canonical.mutations.writer import Writer
from canonical.store import keys, records, rows, statements
from canonical.store.database import one_trip

TWINS = 3  # times that a twin may appear between looking and writing


def add(writer: Writer, new: NewMemory, key: MutationKey | None = None) -> Written:
    """Add one memory.

    Guarantee: on return the record, its version and its event are committed, in one transaction.
               A repeat of the key with the same body, or of the source event, writes nothing more
               and returns what the first one returned, also when both run at the same time.
    Raises:    MutationConflictError, when the key or the event came before with another body.
    Cost:      one round trip; two more for a repeat.
    """
    for _ in range(TWINS):
        with suppress(keys.UsedKeyError):
            return writer.database.run(lambda: _write(writer, new, key))
        with suppress(keys.UsedKeyError):  # a twin has bound the key: its answer is there now
            earlier = writer.database.run(lambda: _earlier(writer, new, key))
            if earlier is not None:
                return earlier
    raise StoreUnavailableError("the command's key is being written by others again and again")


def _write(writer: Writer, new: NewMemory, key: MutationKey | None) -> Written:
    record = decide.add(new, ids.new_id(), writer.clock.now())
    with writer.database.raw() as conn, keys.refusing_used():
        with one_trip(conn) as cursor:
            cursor.execute(statements.for_driver("set_tenant"), writer.binding())
            if key is not None:
                keys.remember(cursor, writer.tenant, key, [(record.id, 1)])
            keys.claim_source_event(cursor, record, rows.fingerprint(new))
            written = records.add(cursor, record, writer.caller.name)
        return written()


def _earlier(writer: Writer, new: NewMemory, key: MutationKey | None) -> Written | None:
    """Return what the key or the source event answered before, and bind a new key to it."""
    with writer.database.raw() as conn, keys.refusing_used(), conn.transaction():
        cursor = conn.cursor()
        cursor.execute(statements.for_driver("set_tenant"), writer.binding())
        if key is not None and (row := keys.find(conn, writer.tenant, key)) is not None:
            return keys.answer_of(row)[0]
        source = new.provenance
        earlier = keys.find_source_event(conn, writer.tenant, source, rows.fingerprint(new))
        if earlier is not None and key is not None:
            keys.remember(cursor, writer.tenant, key, [(earlier.memory_id, earlier.version)])
        return earlier
