-- The tables of the first schema, as they were: a later change is a migration of its own.

CREATE TABLE log_epoch (
    epoch BIGINT NOT NULL,
    system_identifier BIGINT NOT NULL,
    timeline INTEGER NOT NULL,
    reason TEXT NOT NULL,
    began_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (epoch)
);

CREATE TABLE shard (
    shard SMALLINT NOT NULL,
    segment INTEGER NOT NULL,
    pos BIGINT NOT NULL,
    PRIMARY KEY (shard),
    CONSTRAINT shard_pos CHECK (pos >= 0)
)
 WITH (fillfactor = 10);

CREATE TABLE outbox (
    segment INTEGER NOT NULL,
    shard SMALLINT NOT NULL,
    pos BIGINT NOT NULL,
    memory_id UUID NOT NULL,
    rev BIGINT NOT NULL,
    version INTEGER NOT NULL,
    op TEXT NOT NULL,
    tenant TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT outbox_pkey PRIMARY KEY (shard, pos, segment)
)
 PARTITION BY LIST (segment);

CREATE INDEX outbox_tail ON outbox (tenant, shard, pos);

CREATE TABLE memory (
    tenant TEXT NOT NULL,
    id UUID NOT NULL,
    user_id TEXT,
    agent_id TEXT,
    run_id TEXT,
    actor_id TEXT,
    role TEXT,
    version INTEGER NOT NULL,
    rev BIGINT NOT NULL,
    status TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    content_hash BYTEA,
    attributed_to TEXT,
    metadata JSONB DEFAULT '{}'::jsonb NOT NULL,
    provenance JSONB DEFAULT '{}'::jsonb NOT NULL,
    valid_from TIMESTAMP WITH TIME ZONE,
    valid_to TIMESTAMP WITH TIME ZONE,
    expires_at TIMESTAMP WITH TIME ZONE,
    deleted_at TIMESTAMP WITH TIME ZONE,
    deleted_by TEXT,
    deleted_why TEXT,
    superseded_by UUID,
    legal_hold BOOLEAN DEFAULT false NOT NULL,
    salt UUID,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (tenant, id),
    CONSTRAINT memory_scope CHECK (num_nonnulls(user_id, agent_id, run_id) >= 1),
    CONSTRAINT memory_version_rev CHECK (version >= 1 AND rev >= version),
    CONSTRAINT memory_status CHECK (status IN ('active', 'superseded', 'deleted', 'erased')),
    CONSTRAINT memory_tombstone CHECK ((deleted_at IS NOT NULL) = (status IN ('deleted', 'erased'))),
    CONSTRAINT memory_erased CHECK ((status = 'erased') = (content_hash IS NULL) AND (status <> 'erased' OR text = '')),
    CONSTRAINT memory_validity CHECK (valid_from < valid_to)
)
 PARTITION BY HASH (id);

CREATE INDEX memory_run ON memory (tenant, run_id, id) WHERE run_id IS NOT NULL;

CREATE INDEX memory_agent ON memory (tenant, agent_id, id) WHERE agent_id IS NOT NULL;

CREATE INDEX memory_user ON memory (tenant, user_id, id) WHERE user_id IS NOT NULL;

CREATE TABLE memory_version (
    tenant TEXT NOT NULL,
    memory_id UUID NOT NULL,
    version INTEGER NOT NULL,
    op TEXT NOT NULL,
    status TEXT NOT NULL,
    text TEXT NOT NULL,
    text_mac BYTEA NOT NULL,
    metadata JSONB NOT NULL,
    valid_from TIMESTAMP WITH TIME ZONE,
    valid_to TIMESTAMP WITH TIME ZONE,
    expires_at TIMESTAMP WITH TIME ZONE,
    shard SMALLINT NOT NULL,
    pos BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    by TEXT,
    why TEXT,
    PRIMARY KEY (tenant, memory_id, version)
)
 PARTITION BY HASH (memory_id);

CREATE TABLE link (
    tenant TEXT NOT NULL,
    source UUID NOT NULL,
    relation TEXT NOT NULL,
    target UUID NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (tenant, source, relation, target)
);

CREATE INDEX link_target ON link (tenant, target);

CREATE TABLE mutation (
    tenant TEXT NOT NULL,
    mutation_id TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    command TEXT NOT NULL,
    body_hash BYTEA NOT NULL,
    memory_ids UUID[] NOT NULL,
    versions INTEGER[] NOT NULL,
    outcome JSONB,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (tenant, mutation_id, chunk)
);

CREATE INDEX mutation_age ON mutation (created_at);

CREATE TABLE source_event (
    tenant TEXT NOT NULL,
    event_id TEXT NOT NULL,
    event_part INTEGER NOT NULL,
    memory_id UUID NOT NULL,
    body_hash BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (tenant, event_id, event_part)
);

CREATE INDEX source_event_age ON source_event (created_at);

CREATE TABLE conversation (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    user_id TEXT,
    agent_id TEXT,
    run_id TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (tenant, id),
    CONSTRAINT conversation_scope CHECK (num_nonnulls(user_id, agent_id, run_id) >= 1)
);

CREATE TABLE message (
    tenant TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    id UUID NOT NULL,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    actor_name TEXT,
    event_id TEXT,
    metadata JSONB DEFAULT '{}'::jsonb NOT NULL,
    occurred_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (tenant, conversation_id, id)
)
 PARTITION BY HASH (id);

CREATE TABLE projection (
    name TEXT NOT NULL,
    paused BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE parked (
    tenant TEXT NOT NULL,
    projection TEXT NOT NULL,
    generation INTEGER NOT NULL,
    memory_id UUID NOT NULL,
    shard SMALLINT NOT NULL,
    first_pos BIGINT NOT NULL,
    last_pos BIGINT NOT NULL,
    attempts INTEGER DEFAULT 1 NOT NULL,
    next_try TIMESTAMP WITH TIME ZONE NOT NULL,
    error_code TEXT NOT NULL,
    error TEXT NOT NULL,
    parked_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (tenant, projection, generation, memory_id)
);

CREATE INDEX parked_due ON parked (projection, generation, next_try);

CREATE TABLE embedding_cache (
    tenant TEXT NOT NULL,
    model TEXT NOT NULL,
    text_hash BYTEA NOT NULL,
    vector BYTEA NOT NULL,
    PRIMARY KEY (tenant, model, text_hash)
);

CREATE TABLE name_cache (
    tenant TEXT NOT NULL,
    model TEXT NOT NULL,
    text_hash BYTEA NOT NULL,
    names JSONB NOT NULL,
    PRIMARY KEY (tenant, model, text_hash)
);

CREATE TABLE entity (
    tenant TEXT NOT NULL,
    generation INTEGER NOT NULL,
    id UUID NOT NULL,
    user_id TEXT,
    agent_id TEXT,
    run_id TEXT,
    name TEXT NOT NULL,
    display TEXT NOT NULL,
    label TEXT NOT NULL,
    PRIMARY KEY (tenant, generation, id)
);

CREATE TABLE entity_key (
    tenant TEXT NOT NULL,
    generation INTEGER NOT NULL,
    entity_id UUID NOT NULL,
    key TEXT NOT NULL,
    share REAL NOT NULL,
    user_id TEXT,
    agent_id TEXT,
    run_id TEXT,
    PRIMARY KEY (tenant, generation, entity_id, key)
);

CREATE INDEX entity_key_run ON entity_key (tenant, generation, run_id, key, entity_id) WHERE run_id IS NOT NULL;

CREATE INDEX entity_key_user ON entity_key (tenant, generation, user_id, key, entity_id) WHERE user_id IS NOT NULL;

CREATE INDEX entity_key_agent ON entity_key (tenant, generation, agent_id, key, entity_id) WHERE agent_id IS NOT NULL;

CREATE TABLE entity_link (
    tenant TEXT NOT NULL,
    generation INTEGER NOT NULL,
    memory_id UUID NOT NULL,
    entity_id UUID NOT NULL,
    shard SMALLINT NOT NULL,
    rev BIGINT NOT NULL,
    PRIMARY KEY (tenant, generation, memory_id, entity_id)
);

CREATE INDEX entity_link_entity ON entity_link (tenant, generation, entity_id, memory_id);

CREATE TABLE entity_degree (
    tenant TEXT NOT NULL,
    generation INTEGER NOT NULL,
    entity_id UUID NOT NULL,
    shard SMALLINT NOT NULL,
    degree INTEGER NOT NULL,
    PRIMARY KEY (tenant, generation, entity_id, shard),
    CONSTRAINT entity_degree_range CHECK (degree >= 0)
);

CREATE TABLE audit (
    generation INTEGER NOT NULL,
    shard SMALLINT NOT NULL,
    pos BIGINT NOT NULL,
    tenant TEXT NOT NULL,
    memory_id UUID NOT NULL,
    version INTEGER NOT NULL,
    op TEXT NOT NULL,
    status TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    by TEXT,
    why TEXT,
    text_mac BYTEA NOT NULL,
    previous BYTEA NOT NULL,
    hash BYTEA NOT NULL,
    PRIMARY KEY (generation, shard, pos)
);

CREATE UNIQUE INDEX audit_version ON audit (tenant, generation, memory_id, version);

CREATE TABLE audit_head (
    generation INTEGER NOT NULL,
    shard SMALLINT NOT NULL,
    pos BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    key_id TEXT NOT NULL,
    signature BYTEA NOT NULL,
    signed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (generation, shard, pos)
);

CREATE TABLE api_key (
    tenant TEXT NOT NULL,
    id VARCHAR(32) NOT NULL,
    key_hash BYTEA NOT NULL,
    name TEXT NOT NULL,
    rights TEXT[] NOT NULL,
    max_trust TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    revoked_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (tenant, id),
    UNIQUE (key_hash)
);

CREATE TABLE query_event (
    tenant TEXT NOT NULL,
    query_id UUID NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    keep BOOLEAN DEFAULT false NOT NULL,
    candidates JSONB NOT NULL,
    PRIMARY KEY (tenant, query_id)
);

CREATE INDEX query_event_age ON query_event (at);

CREATE TABLE generation (
    projection TEXT NOT NULL,
    generation INTEGER NOT NULL,
    state TEXT NOT NULL,
    schema_hash TEXT NOT NULL,
    error TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    live_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (projection, generation),
    CONSTRAINT generation_state CHECK (state IN ('building', 'live', 'lost', 'old')),
    CONSTRAINT generation_projection FOREIGN KEY(projection) REFERENCES projection (name)
);

CREATE UNIQUE INDEX generation_live ON generation (projection) WHERE state = 'live';

CREATE TABLE watermark (
    projection TEXT NOT NULL,
    generation INTEGER NOT NULL,
    shard SMALLINT NOT NULL,
    pos BIGINT DEFAULT 0 NOT NULL,
    lease_owner TEXT,
    lease_epoch BIGINT DEFAULT 0 NOT NULL,
    lease_until TIMESTAMP WITH TIME ZONE,
    attempts INTEGER DEFAULT 0 NOT NULL,
    moved_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    halted BOOLEAN DEFAULT false NOT NULL,
    error_code TEXT,
    error TEXT,
    held_since TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (projection, generation, shard),
    CONSTRAINT watermark_generation FOREIGN KEY(projection, generation) REFERENCES generation (projection, generation)
)
 WITH (fillfactor = 10);
