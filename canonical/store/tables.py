"""The tables of the canonical store and of the projections that live in Postgres.

Columns and keys only: partitions, row-level security, privileges and functions are in the
migrations (a test holds both against each other). Every unique key of a tenant's table starts
with the tenant.
"""

from sqlalchemy import (
    ARRAY,
    REAL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData()

TEXT_PARTITIONS = 8  # tables with text: an erase rewrites only the partitions it touched
NOW = text("now()")
EMPTY_OBJECT = text("'{}'::jsonb")
TRACE = text("NULLIF(current_setting('gnomon.trace'::text, true), ''::text)")


def _when(name: str, *, required: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=not required)


def _stamp(name: str) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=NOW)


# The log ------------------------------------------------------------------------------------

log_epoch = Table(
    "log_epoch",
    metadata,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("system_identifier", BigInteger, nullable=False),
    Column("timeline", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    _stamp("began_at"),
)

shard = Table(
    "shard",
    metadata,
    Column("shard", SmallInteger, primary_key=True, autoincrement=False),
    Column("segment", Integer, nullable=False),
    Column("pos", BigInteger, nullable=False),  # of the shard's newest event; 0: none yet
    CheckConstraint("pos >= 0", name="shard_pos"),
    postgresql_with={"fillfactor": "10"},
)

outbox = Table(
    "outbox",
    metadata,
    Column("segment", Integer, nullable=False),
    Column("shard", SmallInteger, nullable=False),
    Column("pos", BigInteger, nullable=False),
    Column("memory_id", Uuid, nullable=False),
    Column("rev", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("op", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    _stamp("at"),
    Column("trace", Text, server_default=TRACE),  # W3C traceparent of the write, if it is traced
    # A reader knows shard and position; the segment is one in each partition.
    PrimaryKeyConstraint("shard", "pos", "segment", name="outbox_pkey"),
    Index("outbox_tail", "tenant", "shard", "pos"),
    postgresql_partition_by="LIST (segment)",
)

# Records ------------------------------------------------------------------------------------

memory = Table(
    "memory",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("id", Uuid, primary_key=True),
    Column("user_id", Text),
    Column("agent_id", Text),
    Column("run_id", Text),
    Column("actor_id", Text),
    Column("role", Text),
    Column("version", Integer, nullable=False),
    Column("rev", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("content_hash", LargeBinary),  # SHA-256 of the NFC form; none once erased
    Column("attributed_to", Text),
    Column("metadata", JSONB, nullable=False, server_default=EMPTY_OBJECT),
    Column("provenance", JSONB, nullable=False, server_default=EMPTY_OBJECT),
    _when("valid_from"),
    _when("valid_to"),
    _when("expires_at"),
    _when("deleted_at"),
    Column("deleted_by", Text),
    Column("deleted_why", Text),
    Column("superseded_by", Uuid),
    Column("legal_hold", Boolean, nullable=False, server_default=text("false")),
    Column("salt", Uuid),  # keys the audit's text_mac; an erase destroys it
    _stamp("created_at"),
    _stamp("updated_at"),
    CheckConstraint("num_nonnulls(user_id, agent_id, run_id) >= 1", name="memory_scope"),
    CheckConstraint("version >= 1 AND rev >= version", name="memory_version_rev"),
    CheckConstraint(
        "status IN ('active', 'superseded', 'deleted', 'erased')", name="memory_status"
    ),
    CheckConstraint(
        "(deleted_at IS NOT NULL) = (status IN ('deleted', 'erased'))", name="memory_tombstone"
    ),
    CheckConstraint(
        "(status = 'erased') = (content_hash IS NULL) AND (status <> 'erased' OR text = '')",
        name="memory_erased",
    ),
    CheckConstraint("valid_from < valid_to", name="memory_validity"),
    Index("memory_user", "tenant", "user_id", "id", postgresql_where=text("user_id IS NOT NULL")),
    Index(
        "memory_agent", "tenant", "agent_id", "id", postgresql_where=text("agent_id IS NOT NULL")
    ),
    Index("memory_run", "tenant", "run_id", "id", postgresql_where=text("run_id IS NOT NULL")),
    postgresql_partition_by="HASH (id)",
)

memory_version = Table(
    "memory_version",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("memory_id", Uuid, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("op", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("text_mac", LargeBinary, nullable=False),  # HMAC of the content under the salt
    Column("metadata", JSONB, nullable=False),
    _when("valid_from"),
    _when("valid_to"),
    _when("expires_at"),
    Column("shard", SmallInteger, nullable=False),
    Column("pos", BigInteger, nullable=False),
    _stamp("at"),
    Column("by", Text),
    Column("why", Text),
    postgresql_partition_by="HASH (memory_id)",
)

link = Table(
    "link",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("source", Uuid, primary_key=True),
    Column("relation", Text, primary_key=True),
    Column("target", Uuid, primary_key=True),
    _stamp("created_at"),
    Index("link_target", "tenant", "target"),
)

# Commands -----------------------------------------------------------------------------------

mutation = Table(
    "mutation",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("mutation_id", Text, primary_key=True),
    Column("chunk", Integer, primary_key=True, autoincrement=False),
    Column("command", Text, nullable=False),
    Column("body_hash", LargeBinary, nullable=False),
    # The answer: ids and versions only. Positions stand in the version rows.
    Column("memory_ids", ARRAY(Uuid), nullable=False),
    Column("versions", ARRAY(Integer), nullable=False),
    Column("outcome", JSONB),  # bulk: chunk size, refused lines; scope delete: the next page
    _stamp("created_at"),
    Index("mutation_age", "created_at"),
)

source_event = Table(
    "source_event",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("event_id", Text, primary_key=True),
    Column("event_part", Integer, primary_key=True, autoincrement=False),
    Column("memory_id", Uuid, nullable=False),
    Column("body_hash", LargeBinary, nullable=False),
    _stamp("created_at"),
    Index("source_event_age", "created_at"),
)

# Conversations ------------------------------------------------------------------------------

conversation = Table(
    "conversation",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("user_id", Text),
    Column("agent_id", Text),
    Column("run_id", Text),
    _stamp("created_at"),
    CheckConstraint("num_nonnulls(user_id, agent_id, run_id) >= 1", name="conversation_scope"),
)

message = Table(
    "message",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("conversation_id", Text, primary_key=True),
    Column("id", Uuid, primary_key=True),  # UUIDv7: in order of arrival
    Column("role", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("actor_name", Text),
    Column("event_id", Text),
    Column("metadata", JSONB, nullable=False, server_default=EMPTY_OBJECT),
    _stamp("occurred_at"),
    _stamp("created_at"),
    postgresql_partition_by="HASH (id)",
)

# Projections --------------------------------------------------------------------------------

projection = Table(
    "projection",
    metadata,
    Column("name", Text, primary_key=True),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
)

generation = Table(
    "generation",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("schema_hash", Text, nullable=False),
    Column("error", Text),
    _stamp("created_at"),
    _when("live_at"),
    CheckConstraint("state IN ('building', 'live', 'lost', 'old')", name="generation_state"),
    Index("generation_live", "projection", unique=True, postgresql_where=text("state = 'live'")),
    ForeignKeyConstraint(["projection"], ["projection.name"], name="generation_projection"),
)

watermark = Table(
    "watermark",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("shard", SmallInteger, primary_key=True, autoincrement=False),
    Column("pos", BigInteger, nullable=False, server_default=text("0")),
    Column("lease_owner", Text),
    Column("lease_epoch", BigInteger, nullable=False, server_default=text("0")),
    _when("lease_until"),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    _stamp("moved_at"),
    Column("halted", Boolean, nullable=False, server_default=text("false")),
    Column("error_code", Text),
    Column("error", Text),
    _when("held_since"),
    ForeignKeyConstraint(
        ["projection", "generation"],
        ["generation.projection", "generation.generation"],
        name="watermark_generation",
    ),
    postgresql_with={"fillfactor": "10"},
)

parked = Table(
    "parked",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("projection", Text, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("memory_id", Uuid, primary_key=True),
    Column("shard", SmallInteger, nullable=False),
    Column("first_pos", BigInteger, nullable=False),
    Column("last_pos", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("1")),
    _when("next_try", required=True),
    Column("error_code", Text, nullable=False),
    Column("error", Text, nullable=False),
    _stamp("parked_at"),
    Index("parked_due", "projection", "generation", "next_try"),
)

embedding_cache = Table(
    "embedding_cache",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("text_hash", LargeBinary, primary_key=True),  # SHA-256 of the exact text
    Column("vector", LargeBinary, nullable=False),  # little-endian float32
)

name_cache = Table(
    "name_cache",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("text_hash", LargeBinary, primary_key=True),
    Column("names", JSONB, nullable=False),  # [[text, label], …]
)

entity = Table(
    "entity",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("id", Uuid, primary_key=True),  # uuid5 of the exact scope and the normalised name
    Column("user_id", Text),
    Column("agent_id", Text),
    Column("run_id", Text),
    Column("name", Text, nullable=False),  # normalised
    Column("display", Text, nullable=False),  # as it stood where it was first seen
    Column("label", Text, nullable=False),
)


def _key_index(scope_id: str) -> Index:
    return Index(
        f"entity_key_{scope_id.removesuffix('_id')}",
        *("tenant", "generation", scope_id, "key", "entity_id"),
        postgresql_where=text(f"{scope_id} IS NOT NULL"),
    )


# What an entity is found by: its name, and each word of a longer one. The scope's ids stand here
# again, so that a look-up reads nothing outside the scope.
entity_key = Table(
    "entity_key",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("entity_id", Uuid, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("share", REAL, nullable=False),  # of the similarity 1 that this key contributes
    Column("user_id", Text),
    Column("agent_id", Text),
    Column("run_id", Text),
    _key_index("user_id"),
    _key_index("agent_id"),
    _key_index("run_id"),
)

entity_link = Table(
    "entity_link",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("memory_id", Uuid, primary_key=True),
    Column("entity_id", Uuid, primary_key=True),
    Column("shard", SmallInteger, nullable=False),
    Column("rev", BigInteger, nullable=False),
    # memory ids rise with time: an entity's newest links are read first
    Index("entity_link_entity", "tenant", "generation", "entity_id", "memory_id"),
)

entity_degree = Table(
    "entity_degree",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("entity_id", Uuid, primary_key=True),
    Column("shard", SmallInteger, primary_key=True, autoincrement=False),
    Column("degree", Integer, nullable=False),
    CheckConstraint("degree >= 0", name="entity_degree_range"),
)

audit = Table(
    "audit",
    metadata,
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("shard", SmallInteger, primary_key=True, autoincrement=False),
    Column("pos", BigInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, nullable=False),
    Column("memory_id", Uuid, nullable=False),
    Column("version", Integer, nullable=False),
    Column("op", Text, nullable=False),
    Column("status", Text, nullable=False),
    _when("at", required=True),
    Column("by", Text),
    Column("why", Text),
    Column("text_mac", LargeBinary, nullable=False),
    Column("previous", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Index("audit_version", "tenant", "generation", "memory_id", "version", unique=True),
)

audit_head = Table(
    "audit_head",
    metadata,
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("shard", SmallInteger, primary_key=True, autoincrement=False),
    Column("pos", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    _stamp("signed_at"),
)

# The face -----------------------------------------------------------------------------------

api_key = Table(
    "api_key",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("id", String(32), primary_key=True),
    Column("key_hash", LargeBinary, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("rights", ARRAY(Text), nullable=False),
    Column("max_trust", Text, nullable=False),
    _stamp("created_at"),
    _when("revoked_at"),
)

query_event = Table(
    "query_event",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("query_id", Uuid, primary_key=True),
    _stamp("at"),
    Column("keep", Boolean, nullable=False, server_default=text("false")),
    Column("candidates", JSONB, nullable=False),  # ids, ranks and scores; never a text
    Index("query_event_age", "at"),
)
