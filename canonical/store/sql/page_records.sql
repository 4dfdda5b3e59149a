-- Read the present state of the memories that a page names, but for those that are parked.
-- Parameters: projection, generation, tenants, ids.
-- Returns:    is_parked, and the columns that make a record.
-- Index:      memory_pkey, parked_pkey.
SELECT k.memory_id IS NOT NULL AS is_parked, m.id, m.tenant, m.user_id, m.agent_id, m.run_id,
       m.version, m.rev, m.status, m.kind, m.text, m.created_at, m.updated_at, m.actor_id, m.role,
       m.attributed_to, m.metadata, m.provenance, m.valid_from, m.valid_to, m.expires_at,
       m.deleted_at, m.deleted_by, m.deleted_why, m.superseded_by, m.legal_hold
  FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[])) AS named(tenant, id)
  JOIN memory m ON m.tenant = named.tenant AND m.id = named.id
  LEFT JOIN parked k
    ON k.tenant = named.tenant AND k.projection = :projection
   AND k.generation = :generation AND k.memory_id = named.id
