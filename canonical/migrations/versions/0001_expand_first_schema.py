"""The first schema: tables, partitions, row-level security, privileges, the log's one function."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None

TABLES = Path(__file__).with_suffix(".sql")
TEXT_PARTITIONS = 8

SHARDS = 16  # a power of two; fixed when the log is made
TENANT = "nullif(current_setting('gnomon.tenant', true), '')"

# table → what the API role may do with its tenant's rows
API_TABLES = {
    "memory": "SELECT, INSERT, UPDATE",
    "memory_version": "SELECT, INSERT",
    "link": "SELECT, INSERT, DELETE",
    "mutation": "SELECT, INSERT",
    "source_event": "SELECT, INSERT",
    "conversation": "SELECT, INSERT",
    "message": "SELECT, INSERT",
    "outbox": "SELECT",
    "parked": "SELECT, UPDATE",
    "entity": "SELECT",
    "entity_key": "SELECT",
    "entity_link": "SELECT",
    "entity_degree": "SELECT",
    "audit": "SELECT",
    "query_event": "SELECT, INSERT, UPDATE",
    "embedding_cache": "",
    "name_cache": "",
    "api_key": "",
}
# table → what projectors may do with the rows of every tenant
PROJECTOR_TABLES = {
    "memory": "SELECT, UPDATE (salt)",  # a row lock needs a column that may be updated
    "memory_version": "SELECT",
    "outbox": "SELECT",
    "mutation": "SELECT, DELETE",  # keys older than their life
    "source_event": "SELECT, DELETE",
    "query_event": "SELECT, DELETE",
    "parked": "SELECT, INSERT, UPDATE, DELETE",
    "entity": "SELECT, INSERT, UPDATE, DELETE",
    "entity_key": "SELECT, INSERT, UPDATE, DELETE",
    "entity_link": "SELECT, INSERT, UPDATE, DELETE",
    "entity_degree": "SELECT, INSERT, UPDATE, DELETE",
    "audit": "SELECT, INSERT",  # append-only
    "embedding_cache": "SELECT, INSERT, DELETE",
    "name_cache": "SELECT, INSERT, DELETE",
}

APPEND_EVENTS = f"""
CREATE FUNCTION shard_of(id uuid) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN (get_byte(uuid_send(id), 15) & {SHARDS - 1})::smallint;

-- The one way into the log: positions come from the shards' counters, so they are dense.
-- The caller's tenant is the setting of its transaction. Call it as late as possible: from here
-- to the commit no one else can write to the shards that are touched.
CREATE FUNCTION append_events(ids uuid[], revs bigint[], versions integer[], ops text[])
RETURNS TABLE (ord bigint, shard smallint, pos bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $body$
#variable_conflict use_column
DECLARE
    who text := nullif(current_setting('gnomon.tenant', true), '');
    bases bigint[] := array_fill(0::bigint, ARRAY[{SHARDS}]);
    segments integer[] := array_fill(0, ARRAY[{SHARDS}]);
    touched record;
    base bigint;
    part integer;
BEGIN
    IF who IS NULL THEN
        RAISE EXCEPTION 'append_events needs a tenant' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF cardinality(ids) = 1 THEN
        RETURN QUERY
        WITH moved AS (
            UPDATE shard AS c SET pos = c.pos + 1 WHERE c.shard = shard_of(ids[1])
            RETURNING c.segment, c.shard, c.pos
        ), logged AS (
            INSERT INTO outbox (segment, shard, pos, memory_id, rev, version, op, tenant)
            SELECT m.segment, m.shard, m.pos, ids[1], revs[1], versions[1], ops[1], who
              FROM moved m
        )
        SELECT 1::bigint, m.shard, m.pos FROM moved m;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'no counter of the shard of %', ids[1] USING ERRCODE = 'no_data_found';
        END IF;
        RETURN;
    END IF;
    -- Ascending, so that two writers never wait for each other in a circle.
    FOR touched IN
        SELECT shard_of(i.id) AS s, count(*) AS n FROM unnest(ids) AS i(id) GROUP BY 1 ORDER BY 1
    LOOP
        UPDATE shard AS c SET pos = c.pos + touched.n WHERE c.shard = touched.s
        RETURNING c.pos - touched.n, c.segment INTO STRICT base, part;
        bases[touched.s + 1] := base;
        segments[touched.s + 1] := part;
    END LOOP;
    RETURN QUERY
    WITH placed AS MATERIALIZED (
        SELECT e.ord, e.s, e.id, e.rev, e.version, e.op,
               bases[e.s + 1] + row_number() OVER (PARTITION BY e.s ORDER BY e.ord) AS p
          FROM (SELECT u.*, shard_of(u.id) AS s
                  FROM unnest(ids, revs, versions, ops) WITH ORDINALITY
                    AS u(id, rev, version, op, ord)) e
    ), logged AS (
        INSERT INTO outbox (segment, shard, pos, memory_id, rev, version, op, tenant)
        SELECT segments[s + 1], s, p, id, rev, version, op, who FROM placed
    )
    SELECT placed.ord, placed.s, placed.p FROM placed;
END
$body$;
REVOKE ALL ON FUNCTION append_events FROM PUBLIC;
GRANT EXECUTE ON FUNCTION append_events TO gnomon_api;

-- When an event was written, of whichever tenant: how late a projection is concerns everyone.
CREATE FUNCTION event_time(of_shard smallint, of_pos bigint) RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $body$
    SELECT at FROM outbox WHERE shard = of_shard AND pos = of_pos
$body$;
REVOKE ALL ON FUNCTION event_time FROM PUBLIC;
GRANT EXECUTE ON FUNCTION event_time TO gnomon_api;
"""

# The audit's running hash: each entry's hash is SHA-256 of the one before it and the entry.
AUDIT_CHAIN = """
CREATE FUNCTION audit_chain_step(hash bytea, entry bytea, head bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN sha256(coalesce(hash, head) || entry);

-- Over the entries of a chain in their order; `head`: the hash that they follow.
CREATE AGGREGATE audit_chain(entry bytea, head bytea) (SFUNC = audit_chain_step, STYPE = bytea);
"""


def upgrade() -> None:
    """Make the schema in an empty database, as the role `gnomon_owner`."""
    op.get_bind().exec_driver_sql(TABLES.read_text())
    for table in ("memory", "memory_version", "message"):
        for n in range(TEXT_PARTITIONS):
            op.execute(
                f"CREATE TABLE {table}_p{n} PARTITION OF {table} "
                f"FOR VALUES WITH (MODULUS {TEXT_PARTITIONS}, REMAINDER {n})"
            )
    op.execute("CREATE TABLE outbox_s1 PARTITION OF outbox FOR VALUES IN (1)")
    op.execute(
        "INSERT INTO shard (shard, segment, pos) "
        f"SELECT n, 1, 0 FROM generate_series(0, {SHARDS - 1}) n"
    )
    op.execute(
        "INSERT INTO log_epoch (epoch, system_identifier, timeline, reason) "
        "SELECT 1, s.system_identifier, c.timeline_id, 'the log was made' "
        "FROM pg_control_system() s, pg_control_checkpoint() c"
    )
    op.execute(
        "INSERT INTO projection (name) VALUES ('vector'), ('keyword'), ('entity'), ('audit')"
    )
    op.execute(APPEND_EVENTS)
    op.execute(AUDIT_CHAIN)
    _wall_off_tenants()
    _grant_the_rest()


def _wall_off_tenants() -> None:
    for table in API_TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        # The owner runs migrations and append_events, and never serves a request.
        op.execute(f"CREATE POLICY owner ON {table} TO gnomon_owner USING (true)")
        if table != "api_key":
            op.execute(f"CREATE POLICY tenant ON {table} TO gnomon_api USING (tenant = {TENANT})")
    # A key's row is seen by whoever presents that key, and through the tenant by nobody.
    op.execute(
        "CREATE POLICY presented ON api_key TO gnomon_api USING "
        "(key_hash = decode(current_setting('gnomon.key_hash', true), 'hex'))"
    )
    for table, rights in API_TABLES.items():
        if rights:
            op.execute(f"GRANT {rights} ON {table} TO gnomon_api")
    op.execute("GRANT SELECT ON api_key TO gnomon_api")
    for table, rights in PROJECTOR_TABLES.items():
        op.execute(f"CREATE POLICY every_tenant ON {table} TO gnomon_projector USING (true)")
        op.execute(f"GRANT {rights} ON {table} TO gnomon_projector")


def _grant_the_rest() -> None:
    op.execute("GRANT SELECT ON shard, log_epoch, projection, generation, watermark TO gnomon_api")
    op.execute("GRANT UPDATE (paused) ON projection TO gnomon_api")
    op.execute("GRANT SELECT ON shard, log_epoch, projection TO gnomon_projector")
    op.execute("GRANT SELECT, INSERT, UPDATE ON generation, watermark TO gnomon_projector")
    op.execute("GRANT SELECT, INSERT ON audit_head TO gnomon_projector")
    op.execute("GRANT SELECT ON audit_head TO gnomon_api")
