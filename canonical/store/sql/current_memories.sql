-- Read the present state of some records of a tenant.   Parameters: tenant, ids (each once).
-- Index: memory_pkey: one look-up for each, where `id = ANY` would try all partitions for all ids.
SELECT m.*
  FROM unnest(CAST(:ids AS uuid[])) AS wanted(id)
 CROSS JOIN LATERAL (
       SELECT tenant, id, user_id, agent_id, run_id, actor_id, role, version, rev, status, kind, text,
              attributed_to, metadata, provenance, valid_from, valid_to, expires_at, deleted_at,
              deleted_by, deleted_why, superseded_by, legal_hold, created_at, updated_at
         FROM memory WHERE tenant = :tenant AND id = wanted.id OFFSET 0) m
