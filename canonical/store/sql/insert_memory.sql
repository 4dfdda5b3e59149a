-- Add one record in its first state.
-- Parameters: the columns.   Isolation: READ COMMITTED.   Index: memory_pkey.
INSERT INTO memory (
    tenant, id, user_id, agent_id, run_id, actor_id, role, version, rev, status, kind, text,
    content_hash, attributed_to, metadata, provenance, valid_from, valid_to, expires_at, salt,
    created_at, updated_at)
VALUES (
    :tenant, :id, :user_id, :agent_id, :run_id, :actor_id, :role, 1, 1, 'active', :kind, :text,
    :content_hash, :attributed_to, :metadata, :provenance, :valid_from, :valid_to, :expires_at,
    :salt, :now, :now)
