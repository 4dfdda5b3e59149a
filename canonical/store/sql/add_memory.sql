-- Add one record in its first state, with its version and its event.
-- Parameters: the columns, text_mac, by, now.   Returns: memory_id, version, shard, pos.
-- Isolation:  READ COMMITTED. The transaction's last statement but the commit: append_events locks
--             the shard's counter until then.   Index: memory_pkey.
WITH added AS (
    INSERT INTO memory (
        tenant, id, user_id, agent_id, run_id, actor_id, role, version, rev, status, kind, text,
        content_hash, attributed_to, metadata, provenance, valid_from, valid_to, expires_at, salt,
        created_at, updated_at)
    VALUES (
        :tenant, :id, :user_id, :agent_id, :run_id, :actor_id, :role, 1, 1, 'active', :kind, :text,
        :content_hash, :attributed_to, :metadata, :provenance, :valid_from, :valid_to, :expires_at,
        :salt, :now, :now)
    RETURNING *
), placed AS MATERIALIZED (
    SELECT shard, pos FROM append_events(ARRAY[CAST(:id AS uuid)], ARRAY[CAST(1 AS bigint)],
                                         ARRAY[1], ARRAY['add'])
)
INSERT INTO memory_version (
    tenant, memory_id, version, op, status, text, text_mac, metadata, valid_from, valid_to,
    expires_at, shard, pos, at, by)
SELECT a.tenant, a.id, 1, 'add', 'active', a.text, :text_mac, a.metadata, a.valid_from,
       a.valid_to, a.expires_at, p.shard, p.pos, :now, :by
  FROM added a, placed p
RETURNING memory_id, version, shard, pos
